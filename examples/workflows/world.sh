#!/bin/sh
# A small world: each call is a line in world.log, done once per key, and can be asked about and refused.
#
#   world.sh do TOOL      acts (arguments as JSON on standard input) and answers with an id and a price
#   world.sh ask          says whether it acted under $COUNTERFOIL_KEY
#
# A file named refuse-TOOL beside it makes that tool say no.
set -eu
cd "$(dirname "$0")"
mkdir -p done
case "$1" in
do)
    args=$(cat)
    if [ -e "refuse-$2" ]; then echo "$2 says no" >&2; exit 3; fi
    printf '{"id":"%s-%.8s","price":120,"path":"%s.out","url":"file:%s.out"}\n' "$2" "$COUNTERFOIL_KEY" "$2" "$2" >"done/$COUNTERFOIL_KEY.new"
    mv "done/$COUNTERFOIL_KEY.new" "done/$COUNTERFOIL_KEY"
    printf '%s %s\n' "$2" "$args" >>world.log
    cat "done/$COUNTERFOIL_KEY"
    ;;
ask)
    if [ -e "done/$COUNTERFOIL_KEY" ]; then printf '{"done":true,"result":%s}\n' "$(cat "done/$COUNTERFOIL_KEY")"; else echo '{"done":false}'; fi
    ;;
esac
