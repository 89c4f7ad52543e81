// Streams and events. A stream does at once what it is given, unless it is captured into a graph.

#ifndef WARPLOOM_EMULATOR_DRIVER_STREAM_H_
#define WARPLOOM_EMULATOR_DRIVER_STREAM_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "emulator/driver/graph.h"

namespace warploom::emulator {

struct Stream {
  unsigned flags = 0;
  int priority = 0;
  int device = 0;
  uint64_t number = 0;
};

// The graph that a stream begins to capture, and others join by waiting for its events.
struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  void* graph_handle = nullptr;
  void* origin = nullptr;  // the stream that ends it
  uint64_t number = 0;
};

struct Event {
  unsigned flags = 0;
  bool is_recorded = false;
  std::chrono::steady_clock::time_point time;
  // If it was last recorded in a capture: what the stream had done by then.
  std::weak_ptr<Capture> capture;
  std::vector<Node*> after;
};

Handles<Stream>& streams();
Handles<Event>& events();

// Held while a capture begins, ends or grows; for driver/fork_guard.h.
std::mutex& streams_mutex();

// Whether the handle names a stream that exists: the default streams (null, 1 and 2) always do.
bool is_stream(void* stream);

// False if it is being captured, or is a default stream, which cannot be (CUDA C++ Programming
// Guide, "Creating a Graph Using Stream Capture").
bool begin_capture(void* stream, std::shared_ptr<Graph> into = nullptr);
// nullptr if the stream is not being captured.
std::shared_ptr<Capture> capture_of(void* stream);
bool is_captured(void* stream);
// What the stream's next node will need.
std::vector<Node*> frontier_of(void* stream);
void set_frontier(void* stream, std::vector<Node*> nodes, bool and_old);

enum class CaptureEnd { kWell, kNone, kOfOther, kUnjoined };
// Puts the graph there, with its handle, if it ended well.
CaptureEnd end_capture(void* stream, void** graph);

// Does the work, or makes a node of it if the stream is being captured.
int submit(void* stream, NodeKind kind, Work work);

void record_event(Event& event, void* stream);
void wait_event(Event& event, void* stream);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_STREAM_H_
