#include "emulator/driver/stream.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace warploom::emulator {
namespace {

// The part of a capture that is in one stream.
struct Captured {
  std::shared_ptr<Capture> capture;
  std::vector<Node*> frontier;
};

struct Captures {
  std::mutex mutex;
  std::map<void*, Captured> streams;
  uint64_t last_number = 0;
};

// Never destroyed: streams outlive static objects.
Captures& captures() {
  static auto* captures = new Captures;
  return *captures;
}

bool is_default(void* stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

// Whether what is behind the frontier is all of the graph.
bool covers(const std::vector<Node*>& frontier, const Graph& graph) {
  std::set<const Node*> reached;
  std::vector<const Node*> open(frontier.begin(), frontier.end());
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (!reached.insert(node).second) continue;
    open.insert(open.end(), node->needs.begin(), node->needs.end());
  }
  return reached.size() == graph.nodes.size();
}

}  // namespace

Handles<Stream>& streams() {
  static auto* handles = new Handles<Stream>;
  return *handles;
}

Handles<Event>& events() {
  static auto* handles = new Handles<Event>;
  return *handles;
}

std::mutex& streams_mutex() { return captures().mutex; }

bool is_stream(void* stream) { return is_default(stream) || streams().find(stream) != nullptr; }

bool begin_capture(void* stream, std::shared_ptr<Graph> into) {
  std::lock_guard<std::mutex> lock(captures().mutex);
  if (is_default(stream) || captures().streams.count(stream) != 0) return false;
  auto capture = std::make_shared<Capture>();
  capture->origin = stream;
  capture->number = ++captures().last_number;
  if (into != nullptr) capture->graph = std::move(into);
  captures().streams[stream] = {std::move(capture), {}};
  return true;
}

std::shared_ptr<Capture> capture_of(void* stream) {
  std::lock_guard<std::mutex> lock(captures().mutex);
  auto entry = captures().streams.find(stream);
  return entry == captures().streams.end() ? nullptr : entry->second.capture;
}

bool is_captured(void* stream) { return capture_of(stream) != nullptr; }

std::vector<Node*> frontier_of(void* stream) {
  std::lock_guard<std::mutex> lock(captures().mutex);
  auto entry = captures().streams.find(stream);
  return entry == captures().streams.end() ? std::vector<Node*>() : entry->second.frontier;
}

void set_frontier(void* stream, std::vector<Node*> nodes, bool and_old) {
  std::lock_guard<std::mutex> lock(captures().mutex);
  auto entry = captures().streams.find(stream);
  if (entry == captures().streams.end()) return;
  std::vector<Node*>& frontier = entry->second.frontier;
  if (!and_old) frontier.clear();
  for (Node* node : nodes) {
    if (std::find(frontier.begin(), frontier.end(), node) == frontier.end()) {
      frontier.push_back(node);
    }
  }
}

CaptureEnd end_capture(void* stream, void** graph) {
  std::shared_ptr<Capture> capture;
  bool is_joined = false;
  {
    std::lock_guard<std::mutex> lock(captures().mutex);
    auto& streams = captures().streams;
    auto entry = streams.find(stream);
    if (entry == streams.end()) return CaptureEnd::kNone;
    capture = entry->second.capture;
    if (capture->origin != stream) return CaptureEnd::kOfOther;
    is_joined = covers(entry->second.frontier, *capture->graph);
    for (auto other = streams.begin(); other != streams.end();) {
      other = other->second.capture == capture ? streams.erase(other) : std::next(other);
    }
  }
  if (!is_joined) return CaptureEnd::kUnjoined;
  *graph = capture->graph_handle != nullptr ? capture->graph_handle : graphs().add(capture->graph);
  return CaptureEnd::kWell;
}

int submit(void* stream, NodeKind kind, Work work) {
  {
    std::lock_guard<std::mutex> lock(captures().mutex);
    auto entry = captures().streams.find(stream);
    if (entry != captures().streams.end()) {
      Captured& captured = entry->second;
      captured.frontier = {
          captured.capture->graph->add(kind, std::move(work), captured.frontier)};
      return 0;
    }
  }
  return work();
}

void record_event(Event& event, void* stream) {
  std::lock_guard<std::mutex> lock(captures().mutex);
  auto entry = captures().streams.find(stream);
  event.is_recorded = true;
  event.time = std::chrono::steady_clock::now();
  event.capture.reset();
  event.after.clear();
  if (entry == captures().streams.end()) return;
  event.capture = entry->second.capture;
  event.after = entry->second.frontier;
}

// Outside of captures what was recorded is done already.
void wait_event(Event& event, void* stream) {
  std::shared_ptr<Capture> capture = event.capture.lock();
  if (capture == nullptr || is_default(stream)) return;
  {
    std::lock_guard<std::mutex> lock(captures().mutex);
    captures().streams.try_emplace(stream, Captured{capture, {}});
  }
  set_frontier(stream, event.after, true);
}

}  // namespace warploom::emulator
