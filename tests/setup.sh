#!/usr/bin/env bash
# Brings what a fresh Debian 12 lacks for building, testing and the demo. When all is there it does
# nothing, asks nothing and needs no rights; when something is missing it installs exactly that,
# through sudo when the user is not root; when it cannot, it says what to install and stops, because
# a compiler error a minute later says less.
set -u
packages=(gcc libc6-dev make procps flex bison libjansson-dev libxxhash-dev libopenmpi-dev \
    openmpi-bin libdnnl-dev python3 bible-kjv)

missing=()
if command -v dpkg-query >/dev/null; then
    for package in "${packages[@]}"; do
        state=$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null)
        [ "${state:0:2}" = ii ] || missing+=("$package")
    done
else
    # Another system: only look for the commands, and name them by what they come from on Debian.
    for pair in cc:gcc flex:flex bison:bison mpicc:libopenmpi-dev mpirun:openmpi-bin \
        python3:python3 bible:bible-kjv; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
    done
fi
[ ${#missing[@]} -eq 0 ] && exit 0

give_up() {
    echo "setup: $1" >&2
    echo "setup: please install: ${missing[*]}" >&2
    echo "setup:     apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
}
command -v apt-get >/dev/null || give_up "this is not a Debian system, so nothing was installed"
root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || give_up "not root and there is no sudo"
    root=(sudo)
fi
echo "setup: installing ${missing[*]}"
install=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 install \
    --no-install-recommends "${missing[@]}")
# The lists may be old or absent: try with what is there, then fetch them once.
"${install[@]}" >/dev/null 2>&1 && exit 0
"${root[@]}" apt-get -q update >/dev/null || give_up "apt-get update failed"
"${install[@]}" >/dev/null || give_up "apt-get install failed"
