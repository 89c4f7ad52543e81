// The functions of the CUDA runtime that capture and replay work, and owners of what they make.

#ifndef WARPLOOM_GRAPH_CUDA_API_H_
#define WARPLOOM_GRAPH_CUDA_API_H_

#include <cstddef>
#include <memory>

namespace warploom::graph {

// Functions of the CUDA runtime that TVM has loaded.
struct CudaApi {
  // Throws if there is none.
  static const CudaApi& get();

  // Throws, with the name of what was tried, unless a function has returned success.
  void check(int code, const char* what) const;

  int (*get_device)(int*);
  int (*malloc)(void**, std::size_t);
  int (*free)(void*);
  int (*copy)(void*, const void*, std::size_t, int kind, void* stream);
  int (*create_stream)(void**, unsigned flags);
  int (*destroy_stream)(void*);
  int (*create_event)(void**);
  int (*destroy_event)(void*);
  int (*record_event)(void*, void* stream);
  int (*synchronize_event)(void*);
  int (*begin_capture)(void* stream, int mode);
  int (*end_capture)(void* stream, void** graph);
  int (*instantiate)(void** executable, void* graph, unsigned long long flags);
  int (*launch)(void* executable, void* stream);
  int (*destroy_graph)(void*);
  int (*destroy_executable)(void*);
  int (*last_error)();
  const char* (*error_string)(int);
};

// cudaMemcpyDeviceToDevice.
constexpr int kDeviceToDevice = 3;

// Memory of the current device, which is given back with the object.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::size_t bytes);
  char* data() const { return static_cast<char*>(data_.get()); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<void> data_;
  std::size_t bytes_ = 0;
};

// A point of a stream that the host can wait for.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(void* stream);
  // Returns when all work before the last record() is done; at once if there was none.
  void wait();

 private:
  void* event_ = nullptr;
  bool is_recorded_ = false;
};

// Makes a stream of its own the current one of a device, and captures what it is given.
//
// The mode of the capture is relaxed: memory may be allocated meanwhile.
class Capture {
 public:
  explicit Capture(int device);
  // Ends a capture that finish() has not ended, and throws its work away.
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  // The executable graph.
  std::shared_ptr<void> finish();

 private:
  void end(void** graph);

  int device_;
  void* stream_ = nullptr;
  void* before_ = nullptr;
  bool is_open_ = false;
};

}  // namespace warploom::graph

#endif  // WARPLOOM_GRAPH_CUDA_API_H_
