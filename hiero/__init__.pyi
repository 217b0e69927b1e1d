"""The public names, listed once: hiero/__init__.py loads them from here on first use."""

from .config import Behaviour as Behaviour
from .config import LossConfig as LossConfig
from .config import ModelConfig as ModelConfig
from .config import TextConfig as TextConfig
from .config import TrainConfig as TrainConfig
from .corpus.corpus import Corpus as Corpus
from .corpus.corpus import Hit as Hit
from .corpus.corpus import IndexedVideo as IndexedVideo
from .engine import Embedder as Embedder
from .engine import Engine as Engine
from .engine import Video as Video
from .engine import load as load
from .engine.transcripts import Transcript as Transcript
from .engine.transcripts import read_transcript as read_transcript
from .errors import InputError as InputError
from .features.files import read_features as read_features
from .features.video_features import VideoFeatures as VideoFeatures
from .formats.registry import Exporter as Exporter
from .model.batches import Batch as Batch
from .model.batches import collate as collate
from .model.ensemble import HieroEnsemble as HieroEnsemble
from .model.ensemble import embed_features as embed_features
from .model.ensemble import load_model as load_model
from .model.hiero import HiERO as HiERO
from .model.losses import Losses as Losses
from .model.released import Released as Released
from .model.released import read_released as read_released
from .model.spectral import spectral_cut as spectral_cut
from .model.unet import Level as Level
from .networks.registry import Backbone as Backbone
from .types import Answer as Answer
from .types import Clock as Clock
from .types import Hierarchy as Hierarchy
from .types import Match as Match
from .types import Narration as Narration
from .types import ProgressEvent as ProgressEvent
from .types import Step as Step
from .types import Utterance as Utterance
from .types import VideoFile as VideoFile
from .types import Window as Window

__version__: str
__all__: list[str]
