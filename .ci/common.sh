# Functions and settings shared by .ci/run and .ci/deep, which source this file from the root of the repository.

exec </dev/null

# A missing toolchain component is an error: without a reachable server, rustup cannot download it silently.
export RUSTUP_DIST_SERVER=http://127.0.0.1:9
export CARGO_TERM_COLOR=never
# In a build that runs once, incremental compilation would only cost time and space.
export CARGO_INCREMENTAL=0
target="${CARGO_TARGET_DIR:-$PWD/target}"

step() {
    printf '\n==> [%4d s] %s\n' "$SECONDS" "$1"
    shift
    printf '    %s\n' "$*"
    "$@"
}

# Prints the first of four ports at which no program listens. They are below those that the system gives to clients, which
# may be in use, or wait to be used again, at any moment.
free_ports() {
    local first next
    while :; do
        first=$((20000 + RANDOM % 12000))
        for next in 0 1 2 3; do
            if (: <"/dev/tcp/127.0.0.1/$((first + next))") 2>/dev/null; then continue 2; fi
        done
        echo "$first"
        return
    done
}

# Runs a crate's library tests under a model checker: model_check CHECKER CRATE FILTER... -- CARGO_OPTION...
# A filter that selects no test is an error, because it would check nothing and still look like a success.
model_check() ( # a subshell, so that RUSTFLAGS doesn't leak into later steps
    checker=$1 package=$2 filters=()
    shift 2
    while [[ $1 != -- ]]; do
        filters+=("$1")
        shift
    done
    shift
    cargo=(cargo test --package "$package" --lib --target-dir "$target/$checker" "$@")
    export RUSTFLAGS="--cfg $checker"
    tests=$("${cargo[@]}" -- --list)
    for filter in "${filters[@]}"; do
        selected=$(grep -c "$filter.*: test\$" <<<"$tests" || true)
        echo "    $selected tests match '$filter'"
        if ((selected == 0)); then
            echo "error: no test under $checker matches '$filter'" >&2
            exit 1
        fi
    done
    "${cargo[@]}" -- "${filters[@]}"
)
