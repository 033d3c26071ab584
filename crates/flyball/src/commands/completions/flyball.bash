# Completion of flyball for bash: asks `flyball complete`.

_flyball() {
    local line=${COMP_LINE:0:COMP_POINT} answer word prefix
    local -a words
    read -ra words <<<"$line"
    [[ $line == *[[:blank:]] ]] && words+=("")
    local current=${words[-1]}
    answer=$("$1" complete -- "${words[@]:1}" 2>/dev/null) || return
    # bash breaks words at = and :, and replaces only what follows the last of them.
    prefix=
    [[ $current == *[=:]* ]] && prefix=${current%"${current##*[=:]}"}
    COMPREPLY=()
    while IFS= read -r word; do
        if [[ $word == :files ]]; then
            compopt -o filenames 2>/dev/null
            while IFS= read -r word; do
                COMPREPLY+=("$word")
            done < <(compgen -f -- "${current#"$prefix"}")
        elif [[ -n $word ]]; then
            word=${word%%$'\t'*}
            COMPREPLY+=("${word#"$prefix"}")
        fi
    done <<<"$answer"
    # What ends with = is followed by its value.
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}

complete -F _flyball flyball
