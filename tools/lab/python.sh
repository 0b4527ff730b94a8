# Sourced by the tools: runs one of the lab's Python modules, installing Python first on a bare machine.
run_tool() {
  if ! /usr/bin/python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "[   0.0 s] installing python3"
    if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3; } >/dev/null 2>&1; then
      echo "error: python3 >= 3.11 is missing and could not be installed; run as root: apt-get install python3" >&2
      exit 1
    fi
  fi
  PYTHONPATH="$here" PYTHONDONTWRITEBYTECODE=1 exec /usr/bin/python3 -m "$@"
}
