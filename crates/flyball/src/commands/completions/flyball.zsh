#compdef flyball
# Completion of flyball for zsh: asks `flyball complete`.

_flyball() {
    local line word files=
    local -a answer offers open
    answer=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    for line in "${answer[@]}"; do
        word=${line%%$'\t'*}
        if [[ $line == :files ]]; then
            files=1
        elif [[ $word == *= ]]; then
            # Its value follows without a blank.
            open+=("${word//:/\\:}:${line#*$'\t'}")
        elif [[ -n $word ]]; then
            offers+=("${word//:/\\:}:${line#*$'\t'}")
        fi
    done
    (( $#open )) && _describe -t settings setting open -S ''
    (( $#offers )) && _describe -t values value offers
    [[ -n $files ]] && _files
    return 0
}

if [[ $funcstack[1] == _flyball ]]; then
    _flyball "$@"
else
    compdef _flyball flyball
fi
