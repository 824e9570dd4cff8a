# PyTorch (its CPU build), the runtime with its agent, and the examples: what the samples run in, and a pattern for an image
# of one's own. The layer of packages is large and rarely changes; the project's own is thin. Built by images/build, which
# lays out the context; nothing is downloaded here.
ARG BASE
FROM ${BASE} AS packages
RUN python3 -m venv /opt/spare
RUN --mount=type=bind,source=trainer-wheels,target=/wheels \
    /opt/spare/bin/python -m pip install --no-cache-dir --no-compile --no-index --find-links /wheels -r /wheels/requirements.txt

FROM packages AS project
RUN --mount=type=bind,source=project-wheel,target=/project \
    /opt/spare/bin/python -m pip install --no-cache-dir --no-index --no-deps --prefix /opt/project /project/*.whl

# Compiled once here: a replacement that compiles PyTorch's sources at its start comes back seconds later.
FROM packages AS trimmed
RUN --mount=type=bind,source=trim,target=/trim sh /trim /opt/spare \
 && python3 -m compileall -q -j 0 -x '/(torch/testing/_internal|torch/onnx|sympy|mpmath|networkx|pygments)/' /opt/spare/lib

FROM ${BASE}
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="spare-trainer" \
      org.opencontainers.image.description="PyTorch with the SPARe runtime, its agent and the examples" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=trimmed /opt/spare /opt/spare
COPY --from=project /opt/project /opt/spare
COPY examples /examples
ENV PATH=/opt/spare/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 TORCHINDUCTOR_CACHE_DIR=/tmp/torchinductor
USER 65532:65532
WORKDIR /examples
CMD ["spare-agent", "--help"]
