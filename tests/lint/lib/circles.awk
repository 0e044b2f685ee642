# Circles of source files that use each other's definitions, from `nm -A -P` of their objects: prints one
# circle, with what each file uses of the next, and counts the files on standard error. ROOT: the tree; BUILD:
# the build folder. A file that includes a list (.def) names its rows as prefix_##name; these do not count, as
# a row may use what the list's file offers to all.

# build/kernels/CMakeFiles/ampbench_kernels.dir/ops/blocks.c.o -> kernels/ops/blocks.c; "" if that is gone.
function source_of(object, path, line) {
    if (object in source) return source[object]
    path = substr(object, length(BUILD) + 2)
    sub(/CMakeFiles\/[^\/]*\.dir\//, "", path)
    sub(/\.o$/, "", path)
    source[object] = ""
    if ((getline line < (ROOT "/" path)) < 0) return ""
    do {
        while (match(line, /ab_[a-z0-9_]*##/)) {
            rows[path] = rows[path] " " substr(line, RSTART, RLENGTH - 2)
            line = substr(line, RSTART + RLENGTH)
        }
    } while ((getline line < (ROOT "/" path)) > 0)
    close(ROOT "/" path)
    files++
    return source[object] = path
}

function is_row(file, symbol, count, i, prefix) {
    count = split(rows[file], prefix, " ")
    for (i = 1; i <= count; i++)
        if (index(symbol, prefix[i]) == 1) return 1
    return 0
}

$2 ~ /^(ab_|ampprobe_)/ && $3 ~ /^[A-Z]$/ {
    sub(/:$/, "", $1)
    file = source_of($1)
    if (file == "") next
    if ($3 == "U")
        used[file, $2] = 1
    else
        owner[$2] = file
}

END {
    for (pair in used) {
        split(pair, part, SUBSEP)
        to = owner[part[2]]
        if (to == "" || to == part[1] || is_row(part[1], part[2]) || (part[1], to) in what) continue
        what[part[1], to] = part[2]
        next_of[part[1]] = next_of[part[1]] " " to
        left[part[1]] = 1
    }
    do { # files that use none that is left are in no circle
        changed = 0
        for (file in left) {
            count = split(next_of[file], uses, " ")
            stays = 0
            for (i = 1; i <= count; i++) stays = stays || (uses[i] in left)
            if (stays) continue
            delete left[file]
            changed = 1
        }
    } while (changed)
    first = ""
    for (file in left)
        if (first == "" || file < first) first = file
    for (file = first; file != "" && !(file in seen); file = on) { # every file that is left leads to another
        seen[file] = ++steps
        count = split(next_of[file], uses, " ")
        for (i = 1; i <= count; i++)
            if (uses[i] in left) on = uses[i]
        text[steps] = file " uses " what[file, on] " of "
    }
    if (first != "") {
        for (i = seen[file]; i <= steps; i++) printf "%s", text[i]
        print file
    }
    print files > "/dev/stderr"
}
