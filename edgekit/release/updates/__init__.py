"""Updates: bundles published as static files under TUF's signatures, and the device's side of it.

repository_keys   keys of the repository's roles: offline ones and online ones
repository        a TUF repository in a folder, which any web server serves
publishing        bundles, channels, rollouts and stop signals in it
http_files        files of a server, read with limits of size, time and speed
tuf_metadata      what a channel says, after python-tuf has checked it
releases          which release a device installs: decisions without disk or network
delta             the difference between two bundles: made by the publisher, applied on the device
download          a file by its sha256, resumed where it was left
update            one run on the device: read, decide, fetch, install
polling           runs repeated, at random times

The format of the metadata is The Update Framework's, version 1.0 (https://theupdateframework.github.io/specification).
Needs the extra ``update``.
"""
