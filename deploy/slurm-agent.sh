#!/bin/sh
# An agent beside a job, started by the job itself where the hosts run none. In the batch script, before srun:
#
#   export NCCL_PROFILER_PLUGIN=$(mycroft plugin-path)
#   srun --ntasks-per-node=1 --overlap deploy/slurm-agent.sh &
#
# It ends with the job; what was not sent by then waits in the spool of the host for the next agent.
set -eu
: "${MYCROFT_COLLECTOR:?the address of the collector, as http://collector:8060}"
state=${MYCROFT_AGENT_STATE:-/tmp/mycroft-agent-$(id -u)}
set -- "$MYCROFT_COLLECTOR" --state "$state" --job "${SLURM_JOB_NAME:-job}-${SLURM_JOB_ID:-0}"
if [ -n "${MYCROFT_AGENT_TOKEN_FILE:-}" ]; then
  set -- "$@" --token-file "$MYCROFT_AGENT_TOKEN_FILE"
fi
exec mycroft agent "$@"
