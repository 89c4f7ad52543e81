#include "emulator/exec/schedule/parallel.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "emulator/exec/schedule/livelock.h"

namespace warploom::emulator {
namespace {

// What a cluster leaves behind.
struct Outcome {
  LaunchTotals totals;
  std::exception_ptr error;  // if it did not end well
};

Outcome run_cluster(const GridRun& run, const GridShape& shape, uint64_t number) {
  Outcome outcome;
  try {
    ClusterRun cluster(run, number, shape.id(number));
    try {
      while (!cluster.run()) check_livelock({&cluster});
    } catch (...) {
      outcome.error = std::current_exception();
    }
    outcome.totals = take_totals(cluster);
  } catch (...) {
    outcome.error = std::current_exception();
  }
  return outcome;
}

// Takes outcomes in any order and adds them up in the order of the clusters.
class Merger {
 public:
  Merger(const GridRun& run, LaunchTotals& totals) : run_(run), totals_(totals) {}

  void add(uint64_t number, Outcome outcome) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (outcome.error) run_.watch.fail(number);
    early_.emplace(number, std::move(outcome));
    for (auto next = early_.begin(); next != early_.end() && next->first == merged_;
         next = early_.begin()) {
      merge(next->second);
      early_.erase(next);
    }
  }

  // An error of the host, such as the lack of memory.
  void give_up(std::exception_ptr error) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!error_) error_ = std::move(error);
    run_.watch.fail(0);
  }

  void finish() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void merge(Outcome& outcome) {
    if (!error_) {
      totals_.add(std::move(outcome.totals));
      error_ = outcome.error;
      if (!error_) check_limit();
    }
    ++merged_;
  }

  void check_limit() {
    try {
      check_instructions(run_, totals_.instructions);
    } catch (...) {
      error_ = std::current_exception();
      run_.watch.fail(merged_);
    }
  }

  const GridRun& run_;
  LaunchTotals& totals_;
  std::mutex mutex_;
  std::map<uint64_t, Outcome> early_;  // those that wait for lower ones
  uint64_t merged_ = 0;
  std::exception_ptr error_;
};

}  // namespace

void run_apart(const GridRun& run, const GridShape& shape, LaunchTotals& totals) {
  Merger merger(run, totals);
  std::atomic<uint64_t> next{0};
  auto work = [&] {
    try {
      for (uint64_t number = next++; number < shape.count(); number = next++) {
        if (number > run.watch.first_failed()) return;
        merger.add(number, run_cluster(run, shape, number));
      }
    } catch (...) {
      merger.give_up(std::current_exception());
    }
  };
  // The checks tell which of two clusters came second; one thread makes that the higher one.
  uint64_t most = run.checks != nullptr ? 1 : run.threads;
  uint64_t threads = std::min(most, shape.count());
  std::vector<std::thread> others;
  try {
    while (others.size() + 1 < threads) others.emplace_back(work);
  } catch (const std::exception&) {
    // The host gives no more threads: those that there are do all of the work.
  }
  work();
  for (std::thread& thread : others) thread.join();
  merger.finish();
}

}  // namespace warploom::emulator
