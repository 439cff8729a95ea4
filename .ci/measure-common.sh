# What the scripts that measure the server beside Redis have in common. They source this file from the root of the repository.

command -v redis-server >/dev/null || { echo "redis-server is missing (Debian: the package redis-server)" >&2; exit 1; }

# A transfer between two accounts, which get 1000 when they are first used.
transfer="
    local from = tonumber(redis.call('GET', KEYS[1]) or 1000)
    local to = tonumber(redis.call('GET', KEYS[2]) or 1000)
    if from < 1 then return 0 end
    redis.call('SET', KEYS[1], from - 1)
    redis.call('SET', KEYS[2], to + 1)
    return 1"

# Waits until servers answer: await_servers PORT...
await_servers() {
    local port
    for port in "$@"; do
        until redis-cli -p "$port" ping; do sleep 0.1; done >/dev/null 2>&1
    done
}

# Starts both servers, which keep their data in memory: Redis on port 7001, Weft on port 7002. They end with the script.
start_servers() {
    redis-server --port 7001 --save '' --daemonize no >/dev/null &
    redis=$!
    target/release/weft-server --port 7002 2>/dev/null &
    weft=$!
    trap 'kill $redis $weft; wait' EXIT
    await_servers 7001 7002
}

# Sets `benchmark` to what redis-benchmark runs for a command: benchmark_of COMMAND PORT
benchmark_of() {
    case $1 in
        transfer)
            benchmark=(evalsha "$(redis-cli -p "$2" script load "$transfer")" 2 account:__rand_int__ account:__rand_int__) ;;
        hset) benchmark=(hset hash field:__rand_int__ value) ;;
        zadd) benchmark=(zadd sorted __rand_int__ member:__rand_int__) ;;
        *) benchmark=(-t "$1") ;;
    esac
}
