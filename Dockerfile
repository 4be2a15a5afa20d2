# The service as one static file, in an image without a shell, as a user who is not root.
#
#   docker build -t idemstore .
#   docker run --rm -p 127.0.0.1:8080:8080 -e IDEMSTORE_AUTH=none idemstore
#
# It needs no BuildKit, so that any Docker builds it.

ARG GO_IMAGE=golang:1.26
ARG RUNTIME_IMAGE=gcr.io/distroless/static:nonroot

FROM ${GO_IMAGE} AS build
# Where the modules come from: "download" takes them from GOPROXY, or from where Go does; "vendor" expects `go mod vendor` to have been run in the build's
# context, for a builder that reaches no network.
ARG MODULES=download
ARG GOPROXY=
ENV CGO_ENABLED=0
WORKDIR /src
COPY go.mod go.sum ./
RUN [ "$MODULES" != download ] || go mod download
COPY . .
ARG RELEASE=
RUN go build -trimpath -ldflags "-s -w -X main.release=$RELEASE" -o /out/idemstore ./cmd/idemstore && mkdir /out/data

FROM ${RUNTIME_IMAGE}
COPY --from=build /out/idemstore /idemstore
# SQLite's file lives here, unless IDEMSTORE_DATABASE_URL says otherwise.
COPY --from=build --chown=65532:65532 /out/data /var/lib/idemstore
VOLUME /var/lib/idemstore
# A container is reached from outside or not at all, so it listens everywhere in it. It does not start like that until it is given
# IDEMSTORE_TOKENS_FILE, or IDEMSTORE_AUTH=none says out loud that everybody may do everything.
ENV IDEMSTORE_DATABASE_URL=sqlite:/var/lib/idemstore/idemstore.db \
    IDEMSTORE_LISTEN=:8080 \
    IDEMSTORE_METRICS_LISTEN=:9090
EXPOSE 8080 9090
USER 65532:65532
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["/idemstore", "healthcheck"]
ENTRYPOINT ["/idemstore"]
CMD ["serve"]
