# hiero in a container: docs/guides/deploy.md. Non-root, and its root file system may be read-only.
#
#   docker build -t hiero .                                    for CPUs
#   docker build -t hiero:cuda --build-arg TORCH=cu130 .       for NVIDIA GPUs
#   docker build -t hiero --build-arg WEIGHTS= .               without weights, which are mounted then
#
# Everything is installed in a first stage; the image gets the result only, without caches and sources.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
# cpu, or a CUDA version as torch names it: cu126, cu130. It is part of the address below.
ARG TORCH=cpu
ARG TORCH_INDEX=https://download.pytorch.org/whl/${TORCH}
# Parts of hiero: see [project.optional-dependencies] in pyproject.toml.
ARG EXTRAS=video,serve,remote,export,speech
# What the shipped models read videos and words with; other names: hiero models.
ARG WEIGHTS="i3d-k400 dinov2-text minilm"
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python3 -m venv /opt/hiero
# torch first: it is large and changes seldom, so this layer is there already when only hiero has changed.
COPY constraints.txt ./
RUN /opt/hiero/bin/pip install --index-url "${TORCH_INDEX}" -c constraints.txt torch
COPY pyproject.toml README.md LICENSE ./
COPY hiero hiero
RUN /opt/hiero/bin/pip install -c constraints.txt ".[${EXTRAS}]"
# Each file is verified by its hash; what cannot be fetched or is another file ends the build.
RUN mkdir -p /opt/hiero/share/weights \
    && for name in ${WEIGHTS}; do \
         HIERO_HOME=/tmp/home /opt/hiero/bin/hiero models get "$name" || exit 1; \
         rm -f "/tmp/home/weights/$name/.lock"; \
         mv "/tmp/home/weights/$name" /opt/hiero/share/weights/; \
       done
# CPUs run DINOv2 in 8 bits: made here, since the folder is read-only later and each process would make it anew.
RUN folder=/opt/hiero/share/weights/dinov2-text; if [ -d "$folder" ]; then \
      /opt/hiero/bin/python -c "import sys, pathlib; from hiero.networks.dinov2 import int8_model; \
from hiero.networks.joint_text import HEAD_FILES; \
[int8_model(pathlib.Path(sys.argv[1]), head) for head in HEAD_FILES.values()]" "$folder"; \
    fi

FROM ${BASE}
ARG TORCH=cpu
# Our GPU kernels are compiled on first use, for which Triton needs a C compiler and Python's headers.
RUN if [ "${TORCH}" != cpu ]; then \
      apt-get update -q && apt-get install -y -q --no-install-recommends gcc libc6-dev \
      && rm -rf /var/lib/apt/lists/*; \
    fi
RUN groupadd --gid 10001 hiero \
    && useradd --uid 10001 --gid hiero --no-create-home --home-dir /var/cache/hiero --shell /usr/sbin/nologin hiero \
    && install -d -o hiero -g hiero -m 0750 /var/lib/hiero /var/cache/hiero \
    && install -d -m 0755 /videos
COPY --from=build /opt/hiero /opt/hiero
# Weights of the image are read-only; what is fetched or computed later goes to the cache, a volume.
ENV PATH=/opt/hiero/bin:$PATH \
    HOME=/var/cache/hiero \
    HIERO_HOME=/var/cache/hiero \
    HIERO_WEIGHTS=/opt/hiero/share/weights \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,video
USER 10001:10001
WORKDIR /videos
VOLUME ["/var/lib/hiero", "/var/cache/hiero"]
EXPOSE 8400
HEALTHCHECK --interval=30s --timeout=5s --start-period=2m --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8400/healthz', timeout=4).close()"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["hiero"]
CMD ["serve", "/videos", "--root", "/var/lib/hiero", "--host", "0.0.0.0", "--log-format", "json"]
