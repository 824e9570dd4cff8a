# The operator, in a virtual environment on a small Debian with Python. Built by images/build, which lays out the context;
# nothing is downloaded here.
ARG BASE
FROM ${BASE} AS build
RUN python3 -m venv /opt/spare
RUN --mount=type=bind,source=operator-wheels,target=/wheels \
    /opt/spare/bin/python -m pip install --no-cache-dir --no-compile --no-index --find-links /wheels -r /wheels/requirements.txt
RUN --mount=type=bind,source=project-wheel,target=/project \
    /opt/spare/bin/python -m pip install --no-cache-dir --no-compile --no-index --no-deps /project/*.whl
# Nothing here colours program text, and nobody asks for the time in Vienna.
RUN --mount=type=bind,source=trim,target=/trim sh /trim /opt/spare pygments tzdata

FROM ${BASE}
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="spare-operator" \
      org.opencontainers.image.description="The operator of SPARe: fault-tolerant distributed training on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/spare /opt/spare
# PYTHONSAFEPATH: what lies in the working directory shadows no module.
ENV PATH=/opt/spare/bin:$PATH PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
WORKDIR /
EXPOSE 8080
ENTRYPOINT ["spare-operator"]
