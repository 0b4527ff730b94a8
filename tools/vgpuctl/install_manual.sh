#!/bin/sh
# Run by `meson install`: what the installed programs say of themselves becomes manual pages, completions and a sample
# of the configuration. Arguments: folders of the prefix: bin, sbin, man, data, etc.
set -eu
root=$MESON_INSTALL_DESTDIR_PREFIX
bin=$root/$1 sbin=$root/$2 man=$root/$3 data=$root/$4
case $5 in
/*) etc=${DESTDIR:-}$5 ;;
*) etc=$root/$5 ;;
esac

"$bin/vgpuctl" --write-manual "$man"
if [ -x "$sbin/vgpud" ]; then
  "$sbin/vgpud" --write-manual "$man"
  mkdir -p "$data/doc/bandsaw"
  "$sbin/vgpud" --print-config >"$data/doc/bandsaw/vgpud.toml"
  if [ ! -e "$etc/bandsaw/vgpud.toml" ]; then  # an administrator's file stays
    mkdir -p "$etc/bandsaw"
    cp "$data/doc/bandsaw/vgpud.toml" "$etc/bandsaw/vgpud.toml"
  fi
fi
write_completion() {
  mkdir -p "$(dirname "$data/$2")"
  "$bin/vgpuctl" completion "$1" >"$data/$2"
}
write_completion bash bash-completion/completions/vgpuctl
write_completion zsh zsh/vendor-completions/_vgpuctl
write_completion fish fish/vendor_completions.d/vgpuctl.fish
