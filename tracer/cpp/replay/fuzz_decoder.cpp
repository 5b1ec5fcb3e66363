// mycroft_fuzz_decoder: feeds the reader damaged traces. It may refuse or count, never crash, hang
// or read past the end; run it under sanitizers.
//
//   mycroft_fuzz_decoder SEED ROUNDS FOLDER
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "../arrow_export.h"
#include "../recorder.h"
#include "../trace_reader.h"

namespace {

using namespace mycroft;  // NOLINT: one program

// A trace with every kind of record in it.
std::vector<uint8_t> make_trace(const char* folder) {
  std::string path;
  {
    Recorder recorder;
    RecorderOptions options;
    options.shm.directory = folder;
    options.shm.file_bytes = 1u << 20;
    options.control_path = "";
    char why[256] = {};
    if (!recorder.open(options, why, sizeof why)) {
      std::fprintf(stderr, "mycroft_fuzz_decoder: %s\n", why);
      std::exit(2);
    }
    path = recorder.path();
    CommInfo info;
    info.hash = 77;
    info.name = "default_pg";
    info.rank = 1;
    info.size = 4;
    const uint64_t context = recorder.comm_open(info);
    const uint32_t comm = recorder.comm_of(context);
    for (int i = 0; i < 300; ++i) {
      OpInfo op;
      op.p2p = i % 7 == 0;
      op.kind = op.p2p ? OpKind::send : OpKind::all_reduce;
      op.peer = 3;
      const Handle h = recorder.op_start(comm, op);
      FlowInfo flow;
      flow.send = i % 2 == 0;
      flow.total = 8;
      flow.peer = 2;
      const Handle f = i % 11 == 0 ? recorder.flow_start_foreign(flow, 1, 2, 3, 4)
                                   : recorder.flow_start(comm, h, flow);
      send_moved(*recorder.flow(f), 1, 100, recorder.clock());
      recorder.tick();
      recorder.flow_stop(f);
      recorder.op_end(h);
      recorder.set_enabled(i % 50 != 0);
      recorder.set_enabled(true);
    }
  }
  const int fd = open(path.c_str(), O_RDONLY);
  struct stat st{};
  std::vector<uint8_t> bytes;
  if (fd >= 0 && fstat(fd, &st) == 0) {
    bytes.resize(static_cast<size_t>(st.st_size));
    if (read(fd, bytes.data(), bytes.size()) != st.st_size) bytes.clear();
  }
  if (fd >= 0) close(fd);
  unlink(path.c_str());
  return bytes;
}

// Reads everything the way Python does, and touches every value.
uint64_t read_all(const uint8_t* data, size_t size, uint64_t since, bool live) {
  const TraceReader reader = TraceReader::open_bytes(data, size, "fuzz");
  uint64_t sum = reader.header().head + reader.process().pid;
  for (const auto& entry : reader.communicators()) sum += entry.hash;
  const Decoded decoded = reader.read(since, uint64_t{1} << 40, live);
  for (const auto& batch : decoded.batches) {
    ArrowSchema schema;
    ArrowArray array;
    export_schema(*batch, &schema);
    export_array(batch, &array);
    for (int64_t c = 0; c < array.n_children; ++c) {
      const ArrowArray* column = array.children[c];
      const auto width = batch->columns[static_cast<size_t>(c)].type.width;
      const auto* values = static_cast<const uint8_t*>(column->buffers[1]);
      for (int64_t i = 0; i < column->length * width; ++i) sum += values[i];
    }
    array.release(&array);
    schema.release(&schema);
  }
  return sum + decoded.records + decoded.next;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: mycroft_fuzz_decoder SEED ROUNDS FOLDER\n");
    return 2;
  }
  std::mt19937_64 random(std::strtoull(argv[1], nullptr, 10));
  const int rounds = std::atoi(argv[2]);
  const std::vector<uint8_t> base = make_trace(argv[3]);
  if (base.empty()) return 2;
  std::vector<uint8_t> bytes = base;
  const size_t written =
      kHeaderBytes + size_t{kDirectoryEntries} * kEntryBytes + 1200 * kRecordBytes;
  uint64_t refused = 0, read = 0, sum = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<size_t> changed;
    const auto poke = [&](size_t at, uint8_t value) {
      if (at >= bytes.size()) return;
      changed.push_back(at);
      bytes[at] = value;
    };
    const auto poke64 = [&](size_t at, uint64_t value) {
      for (size_t i = 0; i < 8; ++i) poke(at + i, static_cast<uint8_t>(value >> (8 * i)));
    };
    const uint64_t odd[] = {0,
                            1,
                            ~uint64_t{0},
                            uint64_t{1} << 63,
                            uint64_t{1} << 40,
                            random(),
                            bytes.size(),
                            0x00FF00FF00FF00FFu};
    const int pokes = 1 + static_cast<int>(random() % 8);
    for (int i = 0; i < pokes; ++i) {
      switch (random() % 5) {
        case 0:  // any byte of the header
          poke(random() % 256, static_cast<uint8_t>(random()));
          break;
        case 1:  // a whole word of the header
          poke64(8 * (random() % 32), odd[random() % 8]);
          break;
        case 2:  // the head
          poke64(offsetof(FileHeader, head), odd[random() % 8]);
          break;
        case 3:  // any byte of what is written
          poke(random() % written, static_cast<uint8_t>(random()));
          break;
        default:  // a word of a record
          poke64(kHeaderBytes + size_t{kDirectoryEntries} * kEntryBytes + 8 * (random() % 9600),
                 odd[random() % 8]);
      }
    }
    // The end may be anywhere too.
    const size_t size = random() % 4 == 0 ? random() % bytes.size() : bytes.size();
    const std::vector<uint8_t> exact(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    try {
      sum += read_all(exact.data(), exact.size(), random() % 3 == 0 ? random() % 5000 : 0,
                      random() % 2 == 0);
      ++read;
    } catch (const TraceError& error) {
      sum += std::strlen(error.what());
      ++refused;
    }
    for (const size_t at : changed) bytes[at] = base[at];
  }
  std::printf("rounds %d read %llu refused %llu sum %llu\n", rounds,
              static_cast<unsigned long long>(read), static_cast<unsigned long long>(refused),
              static_cast<unsigned long long>(sum));
  return read > 0 && refused > 0 ? 0 : 1;
}
