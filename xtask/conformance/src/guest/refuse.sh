# `! command` does not end a shell under -e; this does when the command succeeds.
refuse() {
    if "$@"; then
        echo "should have been refused: $*"
        exit 1
    fi
}
