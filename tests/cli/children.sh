# Whatever starts processes: they end when it is killed, at any depth, by SIGTERM or SIGKILL.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
cell=(--net mlp --data synthetic --batch 16 --threads 1)
long=("${cell[@]}" --levels O0,O2 --steps 1000000 --probe-every 10)

# ---- processes ---------------------------------------------------------------------------------------------
# descendants PID: the processes below it, one a line.
descendants() {
    cat /proc/[0-9]*/stat 2>/dev/null | sed 's/^\([0-9]*\) (.*) . \([0-9]*\) .*/\1 \2/' | awk -v root="$1" '
        { parent[$1] = $2 }
        END {
            for (pid in parent)
                for (at = pid; at in parent && at > 1; at = parent[at])
                    if (parent[at] == root) { print pid; break }
        }'
}

is_running() { # not a zombie
    local state
    state=$(awk '/^State:/ {print $2}' "/proc/$1/status" 2>/dev/null)
    [ -n "$state" ] && [ "$state" != Z ]
}

command_line() { { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null; }

# named TEXT PID...: those of them whose command line begins with TEXT
named() {
    local text=$1 pid
    shift
    for pid in "$@"; do
        [[ "$(command_line "$pid")" == "$text"* ]] && echo "$pid"
    done
}

# all_gone PID...: they end within eight seconds; the names of those that do not are in $left
all_gone() {
    local pid
    for _ in $(seq 400); do
        left=''
        for pid in "$@"; do
            is_running "$pid" && left="$left $pid: $(command_line "$pid" | cut -c 1-80);"
        done
        [ -z "$left" ] && return 0
        sleep 0.02
    done
    kill -9 "$@" 2>/dev/null
    return 1
}

# ends SIGNAL DEEPEST COMMAND...: starts the command, waits for a process below it whose command line begins
# with DEEPEST, stops that one, so that it cannot end by itself, and kills the command: all below it end.
ends() {
    local signal=$1 deepest=$2 parent below='' found=''
    shift 2
    local what="${1##*/} ${*:2:3}, SIG$signal"
    "$@" >out 2>err </dev/null &
    parent=$!
    while is_running "$parent" && [ -z "$found" ]; do
        # shellcheck disable=SC2046 # a list of processes
        found=$(named "$deepest" $(descendants "$parent"))
    done
    checks=$((checks + 2))
    # shellcheck disable=SC2086
    kill -STOP $found 2>/dev/null || fail "$what: no '$deepest' was started: $(head -c 300 err)"
    below=$(descendants "$parent")
    kill "-$signal" "$parent"
    # shellcheck disable=SC2086
    all_gone "$parent" $below || fail "$what: left behind:$left"
    wait "$parent" 2>/dev/null
}

# ---- commands that train -----------------------------------------------------------------------------------
run run "${cell[@]}" --levels O0,O2 --scales 16777216 --steps 300 --lr 0.005 --rounds 1 --probe-every 10 \
    --no-plots --quiet \
    --out sick.json
expect_rc 0 "a cell that breaks"
worker="ampbench worker"
for signal in TERM KILL; do
    ends $signal "$worker" "$AMPBENCH" run "${long[@]}" --no-plots --quiet --out run.json
    ends $signal "$worker" "$AMPBENCH" fit --memory-limit 1GiB --net mlp --data synthetic --threads 1
    ends $signal "$worker" "$AMPBENCH" gate --base-exe "$AMPBENCH" --out gate --quiet -- "${long[@]}"
    ends $signal "$worker" "$AMPBENCH" gate --selftest --out self --quiet -- "${long[@]}" --levels O0
    ends $signal "$worker" "$AMPBENCH" diagnose --run "${long[@]}" --no-plots --quiet --out diagnose.json
    ends $signal "$worker" "$AMPBENCH" diagnose sick.json --confirm
    ends $signal "$worker" "$AMPBENCH" advise sick.json --confirm --out advise.json
    ends $signal "$worker" "$AMPBENCH" promote --quiet "${cell[@]}" --steps 100000
done

# ---- programs of others ------------------------------------------------------------------------------------
# A process in a session of its own, and one three shells deep.
mkdir bin repository
cat >bin/gnuplot <<'END'
#!/bin/sh
setsid sh -c 'sleep 2000; true' &
sh -c 'sh -c "sleep 0.1; sleep 2001; true"; true'
END
chmod +x bin/gnuplot
cat >repository/CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.16)
project(stand_in NONE)
add_custom_target(ampbench COMMAND "$work/bin/gnuplot")
END
(cd repository && git init -q . && git add . &&
    git -c user.name=t -c user.email=t@t commit -qm one) >/dev/null
for signal in TERM KILL; do
    ends $signal "sleep 2001" "$AMPBENCH" gate --base-exe bin/gnuplot --out deep --quiet
    ends $signal "sleep 2001" env PATH="$work/bin:$PATH" "$AMPBENCH" report sick.json --plots plots
    ends $signal "sleep 2001" env -C repository "$AMPBENCH" gate --base-ref HEAD --out ../ref --quiet
done

# What a program leaves behind when it ends by itself, and does not end when it is asked to.
printf '#!/bin/sh\n(trap "" TERM; exec setsid sleep 2002) &\necho $! >left\nexit 1\n' >leaves
chmod +x leaves
run gate --base-exe ./leaves --out leaves-out --quiet
expect_rc 1 "a program that leaves a process behind"
all_gone "$(cat left)" || fail "a process was left behind: $left"

finish
