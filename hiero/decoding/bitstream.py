"""NAL units of H.264 and HEVC: how packets are framed, where a stream can be entered, and parameter
sets beside them.

A packet holds NAL units with their lengths before them (MP4, Matroska) or with start codes between
them (MPEG-TS, encoders). Parameter sets, without which nothing can be decoded, are in the header of
a file, in the packets, or in both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

NAL_CODECS = ("h264", "hevc")
START_CODE = b"\x00\x00\x00\x01"
H264_IDR, H264_SPS, H264_PPS = 5, 7, 8
HEVC_IDR, HEVC_CRA = (16, 17, 18, 19, 20), 21  # BLA is entered as IDR is
HEVC_PARAMETER_SETS = (32, 33, 34)
HEVC_END_OF_SEQUENCE = b"\x48\x01"  # a CRA picture after it is entered as the first of a stream is
AVCC_HEADER, HVCC_HEADER = 5, 22  # bytes before the counts of parameter sets
MAX_PARAMETER_SETS = 31  # that the count of SPS in an avcC can say
MAX_SPS_ID = 31
SPS_ID_AT = 4  # byte: after the type, the profile, its constraints and the level


@dataclass(frozen=True)
class NalFormat:
    """How NAL units of a stream are framed, and its parameter sets."""

    codec: str
    length_size: int
    parameter_sets: tuple[bytes, ...]
    header: bytes

    @classmethod
    def from_extradata(cls, codec: str, extradata: bytes | None) -> NalFormat | None:
        """Read the header that a container has of a stream. None where it makes no sense."""
        data = extradata or b""
        if codec not in NAL_CODECS:
            return None
        if not data or data.startswith((START_CODE, START_CODE[1:])):
            return cls(codec, 0, tuple(split_start_codes(data)), data)
        try:
            read = _read_avcc if codec == "h264" else _read_hvcc
            length_size, units = read(data)
        except IndexError:  # cut short
            return None
        return cls(codec, length_size, tuple(units), data)

    def split(self, packet: bytes) -> list[bytes]:
        """The NAL units of a packet."""
        return split_lengths(packet, self.length_size) if self.length_size else split_start_codes(packet)

    def join(self, units: list[bytes]) -> bytes:
        """NAL units as a packet: the reverse of `split`."""
        if not self.length_size:
            return b"".join(START_CODE + unit for unit in units)
        return b"".join(len(unit).to_bytes(self.length_size, "big") + unit for unit in units)

    def type_of(self, unit: bytes) -> int:
        """The type of a NAL unit."""
        return unit[0] & 0x1F if self.codec == "h264" else unit[0] >> 1 & 0x3F

    def can_enter(self, packet: bytes) -> bool:
        """Whether decoding can begin at this packet in the middle of a joined stream."""
        types = {self.type_of(unit) for unit in self.split(packet) if unit}
        # An intra picture of H.264 that is no IDR leaves the numbering of pictures as it was: that of another stream.
        return H264_IDR in types if self.codec == "h264" else bool(types & {*HEVC_IDR, HEVC_CRA})

    def is_parameter_set(self, unit: bytes) -> bool:
        """Whether a NAL unit is a parameter set."""
        return self.type_of(unit) in ((H264_SPS, H264_PPS) if self.codec == "h264" else HEVC_PARAMETER_SETS)

    @property
    def ids(self) -> set[int]:
        """Ids of the parameter sets of H.264."""
        sps = {read_exp_golomb(unit[SPS_ID_AT:]) for unit in self.parameter_sets if self.type_of(unit) == H264_SPS}
        return sps | {read_exp_golomb(unit[1:]) for unit in self.parameter_sets if self.type_of(unit) == H264_PPS}

    def free_id(self) -> int | None:
        """An id that no parameter set of H.264 has; None where all are taken."""
        taken = self.ids
        return next((i for i in range(MAX_SPS_ID, 0, -1) if i not in taken), None)

    def with_parameter_sets(self, units: list[bytes]) -> NalFormat | None:
        """An avcC with more parameter sets, which have ids of their own. None where there is no room for them."""
        sps = [unit for unit in (*self.parameter_sets, *units) if self.type_of(unit) == H264_SPS]
        pps = [unit for unit in (*self.parameter_sets, *units) if self.type_of(unit) == H264_PPS]
        if len(sps) > MAX_PARAMETER_SETS or not self.length_size:
            return None
        out = bytearray(self.header[:AVCC_HEADER])
        out.append(0xE0 | len(sps))
        for unit in sps:
            out += len(unit).to_bytes(2, "big") + unit
        out.append(len(pps))
        for unit in pps:
            out += len(unit).to_bytes(2, "big") + unit
        out += self.header[_avcc_units(self.header)[1] :]  # chroma and depth of the high profiles
        return replace(self, parameter_sets=(*sps, *pps), header=bytes(out))


def split_start_codes(data: bytes) -> list[bytes]:
    """NAL units between start codes. Zeros before a start code belong to it: no NAL unit ends with one."""
    return [unit for part in re.split(b"\x00\x00\x01", data) if (unit := part.rstrip(b"\x00"))]


def split_lengths(data: bytes, length_size: int) -> list[bytes]:
    """NAL units with their lengths before them; one that is cut short is as long as there is data."""
    out, position = [], 0
    while position + length_size <= len(data):
        length = int.from_bytes(data[position : position + length_size], "big")
        out.append(data[position + length_size : position + length_size + length])
        position += length_size + length
    return out


def read_exp_golomb(data: bytes) -> int:
    """The unsigned Exp-Golomb number that some bytes begin with; −1 where there is none."""
    bits = "".join(f"{byte:08b}" for byte in data[:8])
    num_zeros = len(bits) - len(bits.lstrip("0"))
    digits = bits[num_zeros : 2 * num_zeros + 1]
    return int(digits, 2) - 1 if len(digits) == num_zeros + 1 else -1


def _read_avcc(data: bytes) -> tuple[int, list[bytes]]:
    units, _ = _avcc_units(data)
    return (data[4] & 3) + 1, [unit for unit in units if unit]


def _avcc_units(data: bytes) -> tuple[list[bytes], int]:
    """The parameter sets of an avcC, and where they end."""
    position, units = AVCC_HEADER, []
    for mask in (0x1F, 0xFF):  # SPS, then PPS
        count = data[position] & mask
        position += 1
        for _ in range(count):
            length = data[position] << 8 | data[position + 1]
            units.append(data[position + 2 : position + 2 + length])
            position += 2 + length
    return units, position


def _read_hvcc(data: bytes) -> tuple[int, list[bytes]]:
    position, units = HVCC_HEADER + 1, []
    for _ in range(data[HVCC_HEADER]):
        count = data[position + 1] << 8 | data[position + 2]
        position += 3
        for _ in range(count):
            length = data[position] << 8 | data[position + 1]
            units.append(data[position + 2 : position + 2 + length])
            position += 2 + length
    return (data[21] & 3) + 1, [unit for unit in units if unit]
