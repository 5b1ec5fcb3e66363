#include "trace_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "column_memory.h"
#include "decode.h"

namespace mycroft {

namespace {
constexpr uint64_t kBlockRecords = 4096;  // 256 KB: stays in the second-level cache
constexpr uint64_t kMostRecords = uint64_t{1} << 32;
constexpr size_t kSmallColumn = size_t{128} << 10;
constexpr uint64_t kUnsettled = 64;  // more threads than that do not write at one time
}  // namespace

// --- columns ---

Column::Column(Column&& other) noexcept
    : type(other.type),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      capacity_(std::exchange(other.capacity_, 0)),
      limit_(other.limit_),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(std::exchange(other.mapping_bytes_, 0)) {}

Column::~Column() {
  if (mapping_ != nullptr) {
    give_column_memory({mapping_, mapping_bytes_}, size_ * type.width);
  } else {
    std::free(data_);
  }
}

uint8_t* Column::grow(size_t more) {
  if (size_ + more > capacity_) {
    if (mapping_ == nullptr && (size_ + more) * type.width > kSmallColumn &&
        size_ + more <= limit_) {
      map_whole();
    } else {
      enlarge(size_ + more);
    }
  }
  uint8_t* at = data_ + size_ * type.width;
  size_ += more;
  return at;
}

void Column::enlarge(size_t rows) {
  size_t wanted = capacity_ != 0 ? capacity_ * 2 : 1024;
  if (wanted < rows) wanted = rows;
  // More rows than were announced: an ordinary block again.
  void* moved = std::realloc(mapping_ == nullptr ? data_ : nullptr, wanted * type.width);
  if (moved == nullptr) throw std::bad_alloc();
  if (mapping_ != nullptr) {
    std::memcpy(moved, data_, size_ * type.width);
    give_column_memory({mapping_, mapping_bytes_}, size_ * type.width);
    mapping_ = nullptr;
  }
  data_ = static_cast<uint8_t*>(moved);
  capacity_ = wanted;
}

// A column that is going to be long moves, once, into address space for all rows that can come.
void Column::map_whole() {
  const size_t bytes = limit_ * type.width;
  const ColumnMemory memory = take_column_memory(bytes);
  if (memory.mapping == nullptr) {
    enlarge(size_ + 1);
    return;
  }
  uint8_t* aligned = memory.start();
  if (size_ != 0) std::memcpy(aligned, data_, size_ * type.width);
  std::free(data_);
  data_ = aligned;
  capacity_ = limit_;
  mapping_ = memory.mapping;
  mapping_bytes_ = memory.bytes;
}

// --- opening ---

void TraceReader::fail(const std::string& what) const { throw TraceError(name_ + ": " + what); }

TraceReader TraceReader::open_file(const std::string& path) {
  TraceReader reader;
  reader.name_ = path;
  reader.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (reader.fd_ < 0) reader.fail(std::string("cannot be opened: ") + std::strerror(errno));
  struct stat st{};
  if (fstat(reader.fd_, &st) != 0 || !S_ISREG(st.st_mode)) reader.fail("is not a regular file");
  reader.bytes_ = static_cast<uint64_t>(st.st_size);
  reader.check();
  return reader;
}

TraceReader TraceReader::open_bytes(const void* data, size_t bytes, std::string name) {
  TraceReader reader;
  reader.name_ = std::move(name);
  reader.memory_ = static_cast<const uint8_t*>(data);
  reader.bytes_ = bytes;
  reader.check();
  return reader;
}

TraceReader::TraceReader(TraceReader&& other) noexcept
    : name_(std::move(other.name_)),
      fd_(std::exchange(other.fd_, -1)),
      memory_(other.memory_),
      bytes_(other.bytes_),
      layout_(other.layout_) {}

TraceReader::~TraceReader() {
  if (fd_ >= 0) ::close(fd_);
}

// Copies what is there; fewer bytes than asked for if the file ends.
size_t TraceReader::copy(uint64_t offset, void* out, size_t bytes) const {
  if (memory_ != nullptr) {
    if (offset >= bytes_) return 0;
    const uint64_t left = bytes_ - offset;
    const size_t n = left < bytes ? static_cast<size_t>(left) : bytes;
    std::memcpy(out, memory_ + offset, n);
    return n;
  }
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = pread(fd_, static_cast<uint8_t*>(out) + done, bytes - done,
                            static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

void TraceReader::check() {
  if (copy(0, &layout_, sizeof layout_) != sizeof layout_) {
    fail("ends after " + std::to_string(bytes_) +
         " bytes, inside the header; it is no whole trace");
  }
  if (std::memcmp(layout_.magic, kMagic, sizeof kMagic) != 0) {
    fail("does not begin with MYCROFTR; it is no trace of ours");
  }
  if (layout_.version != kLayoutVersion) {
    char writer[sizeof layout_.writer + 1] = {};
    std::memcpy(writer, layout_.writer, sizeof layout_.writer);
    for (char* at = writer; *at != '\0'; ++at) {
      if (*at < ' ' || *at > '~') *at = '?';
    }
    fail("layout version " + std::to_string(layout_.version) + ", this build reads " +
         std::to_string(kLayoutVersion) + "; install the release that wrote it (" + writer + ")");
  }
  if (layout_.header_bytes != kHeaderBytes || layout_.record_bytes != kRecordBytes ||
      layout_.entry_bytes != kEntryBytes || layout_.directory_entries != kDirectoryEntries) {
    fail("header: sizes are not those of layout version 1; the header is damaged");
  }
  if (layout_.directory_offset != kHeaderBytes ||
      layout_.ring_offset != kHeaderBytes + uint64_t{kDirectoryEntries} * kEntryBytes ||
      layout_.ring_records == 0 || layout_.ring_records > kMostRecords) {
    fail("header: offset or length of the ring is impossible; the header is damaged");
  }
}

FileHeader TraceReader::header() const {
  FileHeader now = layout_;
  copy(0, &now, sizeof now);
  return now;
}

uint64_t TraceReader::head() const {
  uint64_t value = 0;
  if (copy(offsetof(FileHeader, head), &value, sizeof value) != sizeof value) return 0;
  return value;
}

bool TraceReader::entry(uint32_t index, uint64_t* words) const {
  const uint64_t offset = layout_.directory_offset + uint64_t{index} * kEntryBytes;
  for (int attempt = 0; attempt < 8; ++attempt) {
    if (copy(offset, words, kEntryBytes) != kEntryBytes) return false;
    uint64_t again = 0;
    if (copy(offset, &again, sizeof again) != sizeof again) return false;
    if (again == words[0] && (again & 1) == 0) return true;
  }
  return true;  // its writer died while changing it: better than nothing, texts are cut at their
                // length
}

ProcessEntry TraceReader::process() const {
  uint64_t words[kEntryBytes / 8] = {};
  ProcessEntry result{};
  result.rank = result.world_size = result.local_rank = result.local_world_size = result.device =
      kUnknown32;
  if (!entry(0, words) ||
      static_cast<EntryType>(static_cast<uint8_t>(words[0] >> 32)) != EntryType::process) {
    return result;
  }
  std::memcpy(&result, words, sizeof result);
  return result;
}

std::vector<CommunicatorEntry> TraceReader::communicators() const {
  std::vector<CommunicatorEntry> result;
  for (uint32_t i = 1; i < kDirectoryEntries; ++i) {
    uint64_t words[kEntryBytes / 8] = {};
    if (!entry(i, words)) break;
    if (static_cast<EntryType>(static_cast<uint8_t>(words[0] >> 32)) != EntryType::communicator) {
      continue;
    }
    CommunicatorEntry found{};
    std::memcpy(&found, words, sizeof found);
    result.push_back(found);
  }
  return result;
}

// --- reading ---

// First of the newest positions that is not whole yet, `end` if all are.
uint64_t TraceReader::settled(uint64_t from, uint64_t end) const {
  const uint64_t newest = end > kUnsettled ? end - kUnsettled : 0;
  for (uint64_t at = newest > from ? newest : from; at < end; ++at) {
    uint64_t word0 = 0;
    copy(layout_.ring_offset + at % layout_.ring_records * kRecordBytes, &word0, sizeof word0);
    if ((word0 & kSequenceMask) != ((at + 1) & kSequenceMask) ||
        word0_type(word0) == RecordType::busy) {
      return at;
    }
  }
  return end;
}

Decoded TraceReader::read(uint64_t from, uint64_t most, bool live) const {
  const uint64_t records = layout_.ring_records;
  const uint64_t end = live ? settled(from, head()) : head();
  Decoded result;
  uint64_t at = end > records ? end - records : 0;
  if (from > at) {
    at = from;
  } else {
    result.losses.overwritten += at - from;
  }
  result.from = at;
  Decoder decoder(end > at ? static_cast<size_t>(end - at < most ? end - at : most) : 0);
  const auto block = std::make_unique<uint64_t[]>(kBlockRecords * (kRecordBytes / 8));
  uint64_t left = most;
  while (at < end && left > 0) {
    const uint64_t slot = at % records;
    uint64_t n = end - at;
    if (n > kBlockRecords) n = kBlockRecords;
    if (n > records - slot) n = records - slot;
    if (n > left) n = left;
    const size_t got = copy(layout_.ring_offset + slot * kRecordBytes, block.get(),
                            static_cast<size_t>(n) * kRecordBytes);
    const uint64_t whole = got / kRecordBytes;
    result.losses.missing += n - whole;
    // Whatever has been reserved by now may have changed under the copy.
    const uint64_t now = head();
    const uint64_t safe = now > records ? now - records : 0;
    uint64_t skip = safe > at ? safe - at : 0;
    if (skip > whole) skip = whole;
    result.losses.overwritten += skip;
    decoder.add(block.get() + skip * (kRecordBytes / 8), static_cast<uint32_t>(whole - skip),
                at + skip, result.losses);
    at += n;
    left -= n;
  }
  result.next = at > from ? at : from;
  result.records = decoder.records();
  result.batches = decoder.take();
  return result;
}

}  // namespace mycroft
