// A profiler plugin that does nothing: the zero of every measurement.
#include "../profiler_abi.h"

namespace {

int32_t init5(void** context, uint64_t, int32_t* mask, const char*, int32_t, int32_t, int32_t,
              mycroft::abi::Logger) {
  static int anything;
  *context = &anything;
  *mask = 30;
  return 0;
}
int32_t start_event(void*, void** handle, void* descr) {
  *handle = descr;
  return 0;
}
int32_t stop_event(void*) { return 0; }
int32_t record_event_state(void*, int32_t, void*) { return 0; }
int32_t finalize(void*) { return 0; }

}  // namespace

extern "C" __attribute__((visibility("default"))) const mycroft::abi::Table<mycroft::abi::Init5>
    ncclProfiler_v7 = {"empty", init5, start_event, stop_event, record_event_state, finalize};
