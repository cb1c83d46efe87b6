# Debian packages unpacked into a folder, for the scripts that set up tests: nothing is installed, no rights needed.
# Sourced by them; exits with 3 where this is no Debian.

keys=/usr/share/keyrings/debian-archive-keyring.gpg

release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Release: $release" 'Component: main' |
    head -n 1)
if [ -z "$mirror" ] || [ ! -e "$keys" ]; then
    echo "$0 needs Debian with apt sources for $release main, and $keys" >&2
    exit 3
fi

# unpack ARCHITECTURE SUITES INTO PACKAGE...: with all that the packages need, from lists of their own. Of several
# suites (one argument), the last is preferred.
unpack() {
    local architecture=$1 from=$2 into=$3 state suite
    shift 3
    state=$(mktemp -d)
    mkdir -p "$state/lists/partial" "$state/archives/partial" "$into"
    : >"$state/status"
    for suite in $from; do echo "deb [signed-by=$keys] $mirror $suite main"; done >"$state/sources"
    local apt=(apt-get -q -y -t "${from##* }" -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture"
        -o "Dir::State=$state" -o "Dir::State::lists=$state/lists" -o "Dir::State::status=$state/status"
        -o "Dir::Cache=$state" -o "Dir::Etc::sourcelist=$state/sources" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::Etc::preferencesparts=/dev/null -o APT::Install-Recommends=false -o APT::Sandbox::User=
        -o Debug::NoLocking=true -o Acquire::Languages=none -o DPkg::Post-Invoke= -o APT::Update::Post-Invoke=)
    "${apt[@]}" update >/dev/null
    "${apt[@]}" install --download-only "$@" >/dev/null
    for deb in "$state"/archives/*.deb; do
        dpkg-deb -x "$deb" "$into"
    done
    rm -rf "$state"
}
