#include "read_dumps.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <thread>

namespace mycroft {
namespace {

// The whole file, or nothing with `error` set.
std::string read_file(const std::string& path, std::size_t max_bytes, std::string& error) {
  std::string content;
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status{};
  if (fd < 0 || ::fstat(fd, &status) != 0) {
    error = std::string("cannot be opened: ") + std::strerror(errno);
  } else if (!S_ISREG(status.st_mode)) {
    error = "is not a regular file";
  } else if (static_cast<std::size_t>(status.st_size) > max_bytes) {
    error = "has " + std::to_string(status.st_size) + " bytes, more than the limit of " +
            std::to_string(max_bytes) + " for one dump";
  } else {
    content.resize(static_cast<std::size_t>(status.st_size));
    std::size_t have = 0;
    while (have < content.size()) {
      ssize_t got = ::read(fd, content.data() + have, content.size() - have);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) error = std::string("cannot be read: ") + std::strerror(errno);
      if (got <= 0) break;
      have += static_cast<std::size_t>(got);
    }
    content.resize(have);
  }
  if (fd >= 0) ::close(fd);
  return content;
}

}  // namespace

std::vector<Dump> read_dumps(const std::vector<std::string>& paths, unsigned threads,
                             std::size_t max_bytes, Pool& pool) {
  std::vector<Dump> dumps(paths.size());
  std::atomic<std::size_t> next{0};
  auto work = [&] {
    Document doc;
    for (std::size_t i = next++; i < paths.size(); i = next++) {
      try {
        std::string error;
        std::string content = read_file(paths[i], max_bytes, error);
        if (error.empty()) {
          dumps[i] = read_dump(content, static_cast<std::uint32_t>(i), doc, pool);
        } else {
          dumps[i].info.error = error;
        }
      } catch (const std::bad_alloc&) {
        dumps[i].info.error = "does not fit into memory";
      }
    }
  };
  std::vector<std::thread> helpers;
  for (unsigned i = 1; i < threads && i < paths.size(); ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  return dumps;
}

}  // namespace mycroft
