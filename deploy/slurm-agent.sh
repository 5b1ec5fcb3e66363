#!/bin/sh
# An agent beside a job, started by the job itself where the hosts run none. In the batch script, before the job's srun:
#
#   export NCCL_PROFILER_PLUGIN=$(mycroft plugin-path) MYCROFT_JOB="$SLURM_JOB_NAME-$SLURM_JOB_ID"
#   export MYCROFT_COLLECTOR=http://collector:8060 MYCROFT_AGENT_TOKEN_FILE=$HOME/.mycroft-agent.token
#   srun --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" --ntasks-per-node=1 --overlap deploy/slurm-agent.sh &
#
# It ends with the job; what was not sent by then waits in the spool of the host for the next agent. Of several jobs of
# a user on one host the first one's agent follows all while it runs, and those of the others say so and end.
set -eu
: "${MYCROFT_COLLECTOR:?the address of the collector, as http://collector:8060}"
set -- "$MYCROFT_COLLECTOR" --state "${MYCROFT_AGENT_STATE:-/tmp/mycroft-agent-$(id -u)}"
if [ -n "${MYCROFT_AGENT_TOKEN_FILE:-}" ]; then
  set -- "$@" --token-file "$MYCROFT_AGENT_TOKEN_FILE"
fi
exec mycroft agent "$@"
