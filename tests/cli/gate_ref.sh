# `ampbench gate --base-ref`: the commit is taken out and built beside the user's repository, which stays as
# it is to the byte: wherever the command is called, whatever the environment says, whatever was left by gates
# that were killed. The stand-in that is built fails at once, with a text that says which commit it is.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
command -v git >/dev/null && command -v cmake >/dev/null || exit 77
cd "$work" || exit 1
KILLS=${AMPBENCH_KILLS:-20} # more for a soak
RANDOM=2026
export HOME=$work/home GIT_CONFIG_NOSYSTEM=1
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE XDG_CONFIG_HOME
mkdir home
git config --global user.name t
git config --global user.email t@t

# ---- a repository with two commits, and one that nobody may touch ------------------------------------------
make_repository() { # FOLDER TEXT
    mkdir -p "$1/deep/folder"
    cat >"$1/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.16)
project(stand_in NONE)
add_custom_target(ampbench
    COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/program ${CMAKE_BINARY_DIR}/ampbench)
END
    printf '#!/bin/sh\necho "this is %s" >&2\nexit 1\n' "$2" >"$1/program"
    chmod +x "$1/program"
    printf 'kept export-ignore\nkept export-subst\nfiltered filter=mine\n' >"$1/.gitattributes"
    # shellcheck disable=SC2016 # the text that git archive would replace
    printf '$Format:%%H$\n' | tee "$1/kept" >"$1/filtered"
    touch "$1/deep/folder/file"
    git -C "$1" init -q . && git -C "$1" add . && git -C "$1" commit -qm one
}
make_repository repository "the first commit"
first=$(git -C repository rev-parse HEAD)
sed -i 's/first/second/' repository/program
git -C repository commit -qam two
make_repository other "another repository"
git -C repository worktree add -q ../linked HEAD
git clone -q --bare repository bare.git
echo "not committed" >>repository/deep/folder/file

gate=repository/ampbench-gate # where the gate puts its files unless it is told otherwise
state() { # every byte of the repositories and their work trees, but for the gate's folder
    find repository other linked bare.git -path $gate -prune -o -type f -exec sha256sum {} + | sort
    find repository other linked bare.git -path $gate -prune -o -not -type f -print | sort
}
before=$(state)

# gate_in FOLDER REF OPTION...: its exit status in $rc
gate_in() {
    local folder=$1 ref=$2
    shift 2
    (cd "$folder" && exec "$AMPBENCH" gate --base-ref "$ref" --quiet "$@") >out 2>err </dev/null
    rc=$?
}
untouched() { # WHAT
    checks=$((checks + 1))
    [ "$(state)" = "$before" ] ||
        fail "$1: the repository was touched: $(diff <(echo "$before") <(state) | head -5)"
}
builds() { # COMMIT WHAT
    expect_text err "this is the $1 commit" "$2"
    untouched "$2"
}

# ---- where it is called ------------------------------------------------------------------------------------
gate_in repository "$first" --out "$work/out-plain"
builds first "a commit"
cmp -s out-plain/"$first"/kept repository/kept || fail "export attributes changed a file"
[ "$(git -C out-plain/"$first" status --porcelain --ignored)" = "!! build/" ] ||
    [ "$(git -C out-plain/"$first" status --porcelain)" = "?? build/" ] || fail "the tree is not the commit"
[ "$(git -C out-plain/"$first" rev-parse HEAD)" = "$first" ] || fail "the tree's HEAD is another commit"
gate_in repository/deep/folder "HEAD^" --out "$work/out-deep"
builds first "a subdirectory"
gate_in linked HEAD --out "$work/out-linked"
builds second "a linked worktree"
gate_in bare.git HEAD --out "$work/out-bare"
builds second "a bare repository"
gate_in repository nothing --out "$work/out-plain"
expect_rc 2 "a commit that is not there"
expect_text err "found 'nothing'" "a commit that is not there"
gate_in / HEAD --out "$work/out-nowhere"
expect_rc 2 "no repository"
expect_text err "not a git repository" "no repository"

# ---- what the environment and the settings say -------------------------------------------------------------
export GIT_DIR=$work/other/.git GIT_WORK_TREE=$work/other GIT_INDEX_FILE=$work/other/.git/index
gate_in repository "$first" --out "$work/out-environment"
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
builds first "GIT_DIR and others"

mkdir -p template/hooks
# shellcheck disable=SC2016 # for the script
printf '#!/bin/sh\ntouch "%s/ran-$(basename "$0")"\ncat\n' "$work" >template/hooks/post-checkout
chmod +x template/hooks/post-checkout
cp template/hooks/post-checkout template/hooks/filter
cp template/hooks/post-checkout template/hooks/fsmonitor
cp template/hooks/post-checkout repository/.git/hooks
git -C repository config filter.mine.smudge "$work/template/hooks/filter"
git -C repository config core.fsmonitor "$work/template/hooks/fsmonitor"
cp home/.gitconfig plain.gitconfig
git config --global filter.mine.smudge "$work/template/hooks/filter"
git config --global filter.mine.required true
git config --global core.fsmonitor "$work/template/hooks/fsmonitor"
git config --global core.hooksPath "$work/template/hooks"
git config --global init.templateDir "$work/template"
before=$(state)
gate_in repository "$first" --out "$work/out-hooks"
builds first "hooks, filters and templates"
checks=$((checks + 1))
found=$(find . -maxdepth 1 -name 'ran-*')
[ -z "$found" ] || fail "these ran: $found"
cp plain.gitconfig home/.gitconfig
git -C repository config --unset filter.mine.smudge
git -C repository config --unset core.fsmonitor
rm repository/.git/hooks/post-checkout
before=$(state)

# ---- what is there already ---------------------------------------------------------------------------------
mkdir -p $gate/"$first"
gate_in repository "$first"
builds first "an empty folder"
rm -rf $gate
mkdir -p $gate/"$first"/.git
echo mine >$gate/"$first"/file
gate_in repository "$first"
expect_rc 2 "a half-made folder"
expect_text err "remove it or give another --out" "a half-made folder"
[ "$(cat $gate/"$first"/file)" = mine ] || fail "a half-made folder: a file was lost"
untouched "a half-made folder"
rm -rf $gate

mkdir -p out-link target
ln -s ../target out-link/"$first"
gate_in repository "$first" --out "$work/out-link"
expect_rc 2 "a link in place of the folder"
[ -z "$(ls target)" ] || fail "a link was followed"

touch out-plain/"$first"/witness
gate_in repository "$first" --out "$work/out-plain"
builds first "a commit that is built"
expect_no_text err "building" "a commit that is built"
rm out-plain/"$first"/.git/ampbench-built
gate_in repository "$first" --out "$work/out-plain"
builds first "a build that was stopped"
expect_text err "building" "a build that was stopped"
[ ! -e out-plain/"$first"/witness ] || fail "a build that was stopped was continued"
mkdir -p out-plain/"$first".unfinished/a
gate_in repository "$first" --out "$work/out-plain"
[ ! -e out-plain/"$first".unfinished ] || fail "a temporary folder was left"

# ---- two at once, and kills --------------------------------------------------------------------------------
for i in 1 2; do
    (cd repository && exec "$AMPBENCH" gate --base-ref HEAD --quiet --out "$work/out-two") \
        2>two$i >/dev/null </dev/null &
done
wait
# One writes the folder, and the other is refused unless the first has ended by then.
checks=$((checks + 1))
[ "$(cat two1 two2 | grep -c "this is the second commit\|is being written by ")" = 2 ] &&
    grep -q "this is the second commit" two1 two2 || fail "two at once: $(cat two1 two2)"
untouched "two at once"

# A folder that has its final name is the whole commit, whenever the gate was killed.
struck=0
for i in $(seq "$KILLS"); do
    # What the last gate started ends with it, but may still write while this begins.
    [ ! -e $gate/"$first"/build ] || until rm -rf $gate/"$first" 2>/dev/null; do :; done
    (cd repository && exec "$AMPBENCH" gate --base-ref "$first" --quiet) >/dev/null 2>&1 </dev/null &
    sleep "0.$(printf %03d $((RANDOM % 60)))"
    kill -9 $! 2>/dev/null && struck=$((struck + 1))
    wait $! 2>/dev/null
    [ ! -e $gate/"$first" ] || cmp -s $gate/"$first"/program <(git -C repository show "$first:program") ||
        fail "kill $i: a part of the commit has its final name"
done
checks=$((checks + 1))
[ "$struck" -gt $((KILLS / 4)) ] || fail "only $struck of $KILLS kills struck"
gate_in repository "$first"
builds first "$KILLS kills"
left=$(find $gate -maxdepth 1 -name '*.unfinished')
[ -z "$left" ] || fail "left after kills: $left"
finish
