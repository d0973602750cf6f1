#!/bin/sh
# The story of a dead draft: refused before the load; let pass by name, a healthy server that the gate sees through; then
# the good one. `make demo`
set -u
profile=${1:-local}
here=$(cd -- "$(dirname -- "$0")" && pwd)
dead=$(mktemp -d)
trap 'rm -rf "$dead"' EXIT

case $profile in
local)                     name=zero-head.gguf good="$here/tiny-eagle3/draft.gguf" ;;
local-sglang | local-vllm) name=no-d2t good="$here/tiny-eagle3/draft" ;;
*)                         echo "no demo for $profile" >&2; exit 2 ;;
esac

bold='' dim='' plain=''
[ -t 2 ] && [ -z "${NO_COLOR:-}" ] && bold='\033[1m' dim='\033[2m' plain='\033[0m'
say() { printf "\n$bold%s$plain\n" "$*" >&2; }
run() { printf "$dim\$ deploy %s$plain\n" "$*" >&2; deploy "$@"; }

python3 "$here/tiny-eagle3/make_dead.py" "$dead" "$name" >/dev/null || exit 1

expect() { [ "$1" -eq "$2" ] || { say "expected exit $2 ($3), got $1"; exit 1; }; }

say "1. A draft that loads, and is dead. Its files tell: it is refused before anything is touched."
run up "profile=$profile" "draft.path=$dead/$name" -y
expect $? 5 "a check failed, nothing was touched"

say "2. The same, let pass by name. The server is healthy and answers well; the gate is what tells."
run up "profile=$profile" "draft.path=$dead/$name" "waive=[ckpt]" -y
expect $? 9 "serving, but below its gates"

say "3. The same server with the good draft."
run restart "profile=$profile" --ckpt "$good" || exit 1

say "4. A question, once more, to what runs now."
run smoke "profile=$profile" || exit 1

cat >&2 <<END

That was the main job: push, verify, stop, free, launch, wait, prove. The server still runs; try

  deploy status
      what runs, as the host tells it
  deploy up profile=$profile
      again: verified, not restarted
  deploy ckpt check $good
      where each of its tensors lands, and what is wrong with it
  deploy history
      every run, with its accept length
  deploy report
      a page of the newest one: verdict, waterfall, acceptance, speed
  deploy plan profile=$profile
      the exact command of each host
  deploy logs -n 20 profile=$profile
      the server's own words
  deploy down profile=$profile
      stop it, and prove that it is gone

(the command is .venv/bin/deploy; \`. .venv/bin/activate\` makes it deploy)
END
