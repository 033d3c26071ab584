#!/bin/bash
# amd-pstate-ut.sh [KERNEL...]: builds the kernel's own amd-pstate unit tests (drivers/cpufreq/amd-pstate-ut.c) as a module
# for kernels in flyball's cache (`flyball guest fetch --kernel 6.1,6.12,7.2`), where Debian leaves it out. The tests
# of `flyball doctor` in guests compare with what it says. Version prefixes; 6.1 6.12 7.2 if none are given.
#
# Headers and source come from the Debian mirror that this machine already uses, through an apt state of its own;
# nothing is installed. Results: ~/.cache/flyball/guest/ut/VERSION.ko. Needs gcc, make, xz and 2 GB while it works.
set -euo pipefail
[ $# -gt 0 ] || set -- 6.1 6.12 7.2
cache=${FLYBALL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flyball}/guest
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

uri=$(apt-get indextargets --format '$(REPO_URI)|$(COMPONENT)' 'Created-By: Packages' | grep -v security |
    awk -F'|' '$2 == "main" && /debian/ {print $1; exit}')
[ -n "$uri" ] || { echo "amd-pstate-ut.sh: apt has no Debian mirror" >&2; exit 4; }
state=$cache/apt/sources
mkdir -p "$state"/{lists/partial,archives/partial,parts} "$cache/ut"
: > "$state/status"
for suite in bookworm bookworm-backports trixie trixie-backports sid; do
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $suite main"
done > "$state/sources.list"
apt_() {
    apt-"$1" -qq -o Dir::Etc::SourceList="$state/sources.list" -o Dir::Etc::SourceParts="$state/parts" \
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts="$state/parts" -o Dir::State="$state" \
        -o Dir::State::status="$state/status" -o Dir::State::lists="$state/lists" -o Dir::Cache="$state" \
        -o APT::Sandbox::User=root -o Acquire::Languages=none "${@:2}"
}
[ -n "$(find "$state/lists" -maxdepth 1 -name '*Packages*' -mmin -1440)" ] || apt_ get update

# The packaged tools may be linked against a newer libc than this machine's; the emulator's package brought one along.
libc=$cache/qemu/root/usr/lib/x86_64-linux-gnu
newer() { # newer FILE REAL: FILE becomes a script that runs REAL with that libc
    printf '#!/bin/sh\nexec %s/ld-linux-x86-64.so.2 --library-path %s %s "$@"\n' "$libc" "$libc" "$2" > "$1"
    chmod +x "$1"
}

build() {
    local want=$1 release version deb line
    release=$(find "$cache/kernels" -mindepth 1 -maxdepth 1 -printf '%f\n' | grep -E "^${want//./\\.}([.+-]|\$)" | sort -V | tail -1)
    [ -n "$release" ] || { echo "kernel $want is not in the cache: flyball guest fetch --kernel $want" >&2; return 1; }
    line=$(cut -d. -f1,2 <<<"$release" | cut -d- -f1)
    cd "$work" && mkdir -p "$want/debs" && cd "$want/debs"
    version=$(apt_ cache madison "linux-headers-$release-amd64" | awk -F'|' '{gsub(/ /, "", $2); print $2; exit}')
    [ -n "$version" ] || { echo "the mirror has no headers of $release any more" >&2; return 1; }
    apt_ get download "linux-headers-$release-amd64=$version" "linux-headers-$release-common=$version"
    apt_ get download "linux-kbuild-$release=$version" 2>/dev/null || apt_ get download "linux-kbuild-$line=$version"
    apt_ get download "linux-source-$line=$version"
    for deb in linux-headers-*.deb linux-kbuild-*.deb; do dpkg-deb -x "$deb" ..; done
    dpkg-deb --fsys-tarfile linux-source-*.deb | tar -xO "./usr/src/linux-source-$line.tar.xz" | xz -dc |
        tar -x -C .. --wildcards '*/drivers/cpufreq/amd-pstate*'
    cd ..
    local headers=$PWD/usr/src/linux-headers-$release-amd64 kbuild
    kbuild=$(echo "$PWD"/usr/lib/linux-kbuild-*)
    sed -i "s#/usr/src/#$PWD/usr/src/#g" "$headers/Makefile"
    sed -i '/^CC = /d; /CROSS_COMPILE/d' "$headers/.kernelvariables"
    rm -f "$headers/vmlinux"
    for real in "$kbuild"/tools/objtool/objtool.real-x86 "$kbuild"/scripts/mod/modpost.real-lsb-64; do
        [ -e "$real" ] && [ -d "$libc" ] && newer "${real%.real*}" "$real"
    done
    # Options of compilers newer than this machine's are left out.
    cat > cc <<'CC'
#!/bin/bash
for word in "$@"; do
    case $word in
        -fmin-function-alignment=* | -f*diagnostics-show-context* | -fzero-init-padding* | -fms-anonymous-structs) ;;
        *) words+=("$word") ;;
    esac
done
exec gcc "${words[@]}"
CC
    chmod +x cc
    mkdir module
    cp linux-source-"$line"/drivers/cpufreq/amd-pstate-ut.c module/
    cp linux-source-"$line"/drivers/cpufreq/amd-pstate.h module/ 2>/dev/null || true
    echo 'obj-m := amd-pstate-ut.o' > module/Makefile
    make -s -C "$headers" M="$PWD/module" CC="$PWD/cc" HOSTCC=gcc modules > log 2>&1 ||
        { tail -20 log >&2; return 1; }
    strip -g -o "$cache/ut/$release.ko.part" module/amd-pstate-ut.ko
    mv "$cache/ut/$release.ko.part" "$cache/ut/$release.ko"
    echo "$cache/ut/$release.ko"
    rm -rf "${work:?}/$want"
}
for kernel; do build "$kernel"; done
