#!/bin/sh
# clang-tidy on one file, unless it has found nothing before in the same text: what the preprocessor makes of
# the file, with its comments, in every compilation. Only lint/tidy.cmake runs it.
# Usage: tidy_file.sh FOLDER CLANG-TIDY ARGUMENT... FILE
#   FOLDER/compilations   lines of a file, a tab and the command that preprocesses it
#   FOLDER/same           what else must be the same: the program and its configuration
#   FOLDER/clean/         digests of texts in which nothing was found, one file for each source
set -u
folder=$1
shift
for file; do :; done
clean=$folder/clean/$(printf '%s' "$file" | tr / +)
tab=$(printf '\t')
digest=$({
    printf '%s\n' "$@"
    cat "$folder/same"
    cat "$file"
    grep -F "$file$tab" "$folder/compilations" | cut -f 2- | sh 2>&1
} | sha256sum)
[ "$(cat "$clean" 2>/dev/null)" != "$digest" ] || exit 0
found=$("$@" 2>&1) || { printf '%s\n' "$found"; exit 1; }
case $found in *": warning: "*) printf '%s\n' "$found" && exit 1 ;; esac
printf '%s\n' "$digest" >"$clean"
