#!/bin/sh
# The story of a dead draft: a healthy server, accept length 1.00, told by the gate; then the good one. `make demo`
set -u
profile=${1:-local}
here=$(cd -- "$(dirname -- "$0")" && pwd)
dead=$(mktemp -d)
trap 'rm -rf "$dead"' EXIT

case $profile in
local)                     name=random-head.gguf good="$here/tiny-eagle3/draft.gguf" ;;
local-sglang | local-vllm) name=no-d2t good="$here/tiny-eagle3/draft" waive="waive=[ckpt]" ;;
*)                         echo "no demo for $profile" >&2; exit 2 ;;
esac

bold='' dim='' plain=''
[ -t 2 ] && [ -z "${NO_COLOR:-}" ] && bold='\033[1m' dim='\033[2m' plain='\033[0m'
say() { printf "\n$bold%s$plain\n" "$*" >&2; }
run() { printf "$dim\$ deploy %s$plain\n" "$*" >&2; deploy "$@"; }

python3 "$here/tiny-eagle3/make_dead.py" "$dead" "$name" >/dev/null || exit 1

say "1. A draft that loads, and is dead. The server will be healthy; the gate is what tells."
run up "profile=$profile" "draft.path=$dead/$name" ${waive:-} -y
code=$?
[ "$code" -eq 9 ] || { say "expected exit 9 (serving, but below its gates), got $code"; exit 1; }

say "2. The same server with the good draft."
run restart "profile=$profile" --ckpt "$good" || exit 1

say "3. A question, once more, to what runs now."
run smoke "profile=$profile" || exit 1

cat >&2 <<END

That was the main job: push, verify, stop, free, launch, wait, prove. The server still runs; try

  deploy status
      what runs, as the host tells it
  deploy up profile=$profile
      again: verified, not restarted
  deploy history
      every run, with its accept length
  deploy plan profile=$profile
      the exact command of each host
  deploy logs -n 20 profile=$profile
      the server's own words
  deploy down profile=$profile
      stop it, and prove that it is gone

(the command is .venv/bin/deploy; \`. .venv/bin/activate\` makes it deploy)
END
