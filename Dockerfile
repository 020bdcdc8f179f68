# The image of the DaemonSet. It only carries the binary, so build that first:
#
#     cargo build --release && podman build --tag localhost/cleanslate:dev .
#
# The binary is linked against glibc: build it on Debian 12 or older, or raise the base image with the build machine.
FROM docker.io/library/debian:bookworm-slim
COPY target/release/cleanslate /usr/bin/cleanslate
ENTRYPOINT ["/usr/bin/cleanslate"]
CMD ["run"]
