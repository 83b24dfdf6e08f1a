#!/bin/sh
# Install the project, editable, into the environment of the given interpreter:
#
#   sh infra/install.sh .venv/bin/python '.[test]'
#
# uv does it in seconds; where it cannot be had or fails, plain pip does the same from the same constraints.
# PIP_FIND_LINKS (a folder of wheels, or several) is honoured where it is set.
set -eu

python=$1
target=$2
export PIP_DISABLE_PIP_VERSION_CHECK=1

with_uv() {
    "$python" -m pip install -qq uv || return 1
    set --
    for place in ${PIP_FIND_LINKS:-}; do
        set -- "$@" --find-links "$place"
    done
    # Compiled here once: a run starts a dozen Python processes, which would each compile what they import.
    "$python" -m uv pip install --quiet --compile-bytecode --python "$python" "$@" \
        --constraint constraints.txt --editable "$target"
}

echo "installing $target into $(dirname "$(dirname "$python")") (a minute or a few)"
if ! with_uv; then
    echo "uv could not install the project; trying plain pip, which is slower" >&2
    "$python" -m pip install --quiet --constraint constraints.txt --editable "$target"
fi
