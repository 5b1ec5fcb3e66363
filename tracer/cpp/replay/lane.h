// One of NCCL's threads: runs what it is given, in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace mycroft::replay {

class Lane {
 public:
  Lane() : thread_([this] { work(); }) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() {
    post(nullptr);
    thread_.join();
  }

  // Runs `job` on this thread; returns when it is done.
  void run(std::function<void()> job) {
    post(std::move(job));
    wait();
  }
  // Gives it to this thread and returns at once.
  void post(std::function<void()> job) {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back(std::move(job));
    ++pending_;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return pending_ == 0; });
  }

 private:
  void work() {
    for (;;) {
      std::function<void()> job;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return !jobs_.empty(); });
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      if (job) job();
      const std::lock_guard<std::mutex> lock(mutex_);
      --pending_;
      changed_.notify_all();
      if (!job) return;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  int pending_ = 0;
  std::thread thread_;
};

}  // namespace mycroft::replay
