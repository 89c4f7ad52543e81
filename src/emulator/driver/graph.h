// CUDA graphs: what a stream is given while it is captured, to be executed as often as asked.

#ifndef WARPLOOM_EMULATOR_DRIVER_GRAPH_H_
#define WARPLOOM_EMULATOR_DRIVER_GRAPH_H_

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace warploom::emulator {

// A launch or a copy; returns a CUresult.
using Work = std::function<int()>;

struct Graph {
  std::vector<Work> work;

  // Does all of it; the first error ends it.
  int replay() const;
};

// Held while a stream's capture begins, ends or grows; for driver/fork_guard.h.
std::mutex& captures_mutex();

// A stream is its address. False if it is being captured, or is the default stream, which cannot be
// (CUDA C++ Programming Guide, "Creating a Graph Using Stream Capture").
bool begin_capture(void* stream);
bool is_captured(void* stream);
// nullptr if the stream is not being captured.
std::unique_ptr<Graph> end_capture(void* stream);

// Does the work, or keeps it if the stream is being captured.
int submit(void* stream, Work work);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_GRAPH_H_
