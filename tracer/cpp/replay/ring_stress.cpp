// mycroft_ring_stress: many writers and a reader on a small ring; every record that the reader
// returns must be whole.
//
//   mycroft_ring_stress FOLDER WRITERS RECORDS     checks and exits
//   mycroft_ring_stress FOLDER WRITERS forever     prints the path and writes until it is killed
//
// A record is whole if `since` follows from `count`: both are chosen by its writer, in different
// words.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "../ring.h"
#include "../shm.h"
#include "../trace_reader.h"

namespace {

using namespace mycroft;  // NOLINT: one program

constexpr uint64_t kFactor = 2654435761u;

uint64_t follows(uint64_t count) { return count * kFactor + 1; }

void write_one(RingWriter& ring, uint64_t count) {
  GapRecord record{};
  record.ts_ns = follows(count) ^ count;
  record.since_ns = follows(count);
  record.count = count;
  for (auto& word : record.reserved) word = count;
  ring.write(record, RecordType::gap, 1, 0);
}

// Returns how many records were returned; exits if one is a mixture.
uint64_t read_and_check(const TraceReader& reader, uint64_t& since, bool live) {
  const Decoded decoded = reader.read(since, UINT64_MAX, live);
  since = decoded.next;
  const Batch& gaps = *decoded.batches[4];
  const auto* since_ns = reinterpret_cast<const uint64_t*>(gaps.columns[2].data());
  const auto* count = reinterpret_cast<const uint64_t*>(gaps.columns[4].data());
  for (size_t i = 0; i < gaps.rows(); ++i) {
    if (since_ns[i] != follows(count[i])) {
      std::fprintf(stderr, "mycroft_ring_stress: a mixture: %llu %llu\n",
                   static_cast<unsigned long long>(since_ns[i]),
                   static_cast<unsigned long long>(count[i]));
      std::exit(1);
    }
  }
  return gaps.rows();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  TraceFile file;
  ShmOptions options;
  options.directory = argv[1];
  options.file_bytes = 1u << 20;
  char why[256] = {};
  if (!file.create(options, why, sizeof why)) {
    std::fprintf(stderr, "mycroft_ring_stress: %s\n", why);
    return 2;
  }
  const bool forever = std::strcmp(argv[3], "forever") == 0;
  const int writers = std::atoi(argv[2]);
  const uint64_t each = forever ? UINT64_MAX : std::strtoull(argv[3], nullptr, 10);
  // Forever: the whole ring. Else few slots, so that laps collide all the time.
  const uint64_t slots = forever ? file.records() : 61;
  file.header()->ring_records = slots;
  RingWriter ring(file.header(), file.ring(), slots);
  if (forever) {
    std::printf("%s\n", file.path());
    std::fflush(stdout);
  }
  std::atomic<int> running{writers};
  std::vector<std::thread> threads;
  for (int w = 0; w < writers; ++w) {
    threads.emplace_back([&, w] {
      for (uint64_t i = 0; i < each; ++i) write_one(ring, i * 64 + static_cast<uint64_t>(w));
      --running;
    });
  }
  const TraceReader reader = TraceReader::open_file(file.path());
  uint64_t since = 0, seen = 0;
  while (running.load() > 0) seen += read_and_check(reader, since, true);
  for (std::thread& thread : threads) thread.join();
  seen += read_and_check(reader, since, false);
  const uint64_t all = static_cast<uint64_t>(writers) * each;
  if (ring.head() != all || since != all) {
    std::fprintf(stderr, "mycroft_ring_stress: head %llu, read up to %llu, of %llu\n",
                 static_cast<unsigned long long>(ring.head()),
                 static_cast<unsigned long long>(since), static_cast<unsigned long long>(all));
    return 1;
  }
  // A writer that was descheduled in the middle of a record for a whole lap: its slot is left
  // alone.
  const uint64_t lost = ring.lost();
  uint64_t* slot = file.ring() + (ring.head() % slots) * (kRecordBytes / 8);
  slot[0] = record_word0(ring.head() - slots, RecordType::busy, 0, 0);
  const uint64_t body = slot[3];
  write_one(ring, 12345);
  if (ring.lost() != lost + 1 || slot[3] != body ||
      reader.read(0, UINT64_MAX, false).losses.torn != 1) {
    std::fprintf(stderr, "mycroft_ring_stress: a busy slot was written\n");
    return 1;
  }
  std::printf("records %llu returned %llu dropped %llu\n", static_cast<unsigned long long>(all),
              static_cast<unsigned long long>(seen), static_cast<unsigned long long>(lost));
  file.close(1);
  unlink(file.path());
  return seen > 0 ? 0 : 1;
}
