#!/bin/sh
# Builds Gemini's image with what builds images here: deploy/images/build.sh NAME[:TAG] [OPTION]...
#
# The tag is pyproject.toml's release unless said, which is the one that the chart asks for. OPTIONs go to the builder:
# --build-arg BASE=IMAGE, --no-cache. $IMAGE_TOOL names a builder and its own options: "buildah --root /tmp/store".
set -eu
[ $# -ge 1 ] || { echo "usage: $0 NAME[:TAG] [OPTION]..." >&2; exit 2; }
cd "$(dirname "$0")/../.."
name=$1
shift
if [ -z "${IMAGE_TOOL:=}" ]; then
    for tool in buildah podman docker; do
        if command -v "$tool" >/dev/null; then IMAGE_TOOL=$tool; break; fi
    done
fi
[ -n "$IMAGE_TOOL" ] || { echo "gemini: nothing builds images here; install buildah, podman or docker" >&2; exit 1; }
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
commit=$("${PYTHON:-python3}" -c 'from libhook import info; print(info.commit())')
case ${name##*/} in *:*) ;; *) name=$name:$version ;; esac
case $IMAGE_TOOL in docker*) ;; *) set -- --ignorefile deploy/images/Containerfile.dockerignore "$@" ;; esac
# shellcheck disable=SC2086  # the builder's own options are words of their own
$IMAGE_TOOL build --file deploy/images/Containerfile --tag "$name" \
    --build-arg VERSION="$version" --build-arg COMMIT="$commit" "$@" .
echo "gemini: built $name at commit $commit; next: ${IMAGE_TOOL%% *} push $name"
