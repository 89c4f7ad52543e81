// libcuda.so.1 of the emulator: streams and events. Events take no time: elapsed times are those of
// the host, and say nothing about a GPU.

#include <chrono>
#include <cstdint>
#include <memory>

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/guard.h"
#include "emulator/driver/session.h"
#include "emulator/driver/stream.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

namespace {

constexpr unsigned kNoTiming = 2;  // CU_EVENT_DISABLE_TIMING

int no_stream() { return fail(abi::kInvalidHandle, "there is no such stream"); }

// f(stream) of a stream that exists; the default streams have no object of their own.
template <class F>
int with_stream(void* handle, F f) {
  return guarded(abi::kInvalidHandle, [&] {
    if (!is_stream(handle)) return no_stream();
    std::shared_ptr<Stream> stream = streams().find(handle);
    if (stream != nullptr) return f(*stream);
    Stream other;
    other.device = Session::current_device();
    other.number = reinterpret_cast<uintptr_t>(handle);
    return f(other);
  });
}

template <class F>
int with_event(void* handle, F f) {
  return guarded(abi::kInvalidHandle, [&] {
    std::shared_ptr<Event> event = events().find(handle);
    return event == nullptr ? fail(abi::kInvalidHandle, "there is no such event") : f(*event);
  });
}

template <class Value>
int put(Value* place, Value value) {
  if (place == nullptr) return abi::kInvalidValue;
  *place = value;
  return abi::kSuccess;
}

// What waits for a stream cannot be captured.
int synchronise(void* handle) {
  return with_stream(handle, [&](Stream&) {
    if (!is_captured(handle)) return abi::kSuccess;
    return fail(abi::kCaptureUnsupported, "the stream is being captured: nothing can wait for it");
  });
}

}  // namespace

WARPLOOM_CUDA_API int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  if (stream == nullptr) return abi::kInvalidValue;
  return guarded(abi::kOutOfMemory, [&] {
    auto made = std::make_shared<Stream>();
    made->flags = flags;
    made->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    made->device = Session::current_device();
    *stream = streams().add(made);
    made->number = reinterpret_cast<uintptr_t>(*stream);
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuStreamCreate(void** stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}

WARPLOOM_CUDA_API int cuStreamDestroy_v2(void* stream) {
  return guarded(abi::kInvalidHandle, [&] {
    if (streams().remove(stream) == nullptr) return no_stream();
    void* graph = nullptr;
    if (end_capture(stream, &graph) == CaptureEnd::kWell) graphs().remove(graph);
    Session::instance().end_overlap(stream);
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuStreamSynchronize(void* stream) { return synchronise(stream); }

WARPLOOM_CUDA_API int cuStreamQuery(void* stream) { return synchronise(stream); }

WARPLOOM_CUDA_API int cuStreamGetFlags(void* handle, unsigned* flags) {
  return with_stream(handle, [&](Stream& stream) { return put(flags, stream.flags); });
}

WARPLOOM_CUDA_API int cuStreamGetPriority(void* handle, int* priority) {
  return with_stream(handle, [&](Stream& stream) { return put(priority, stream.priority); });
}

WARPLOOM_CUDA_API int cuStreamGetId(void* handle, unsigned long long* number) {
  return with_stream(handle, [&](Stream& stream) {
    return put(number, static_cast<unsigned long long>(stream.number));
  });
}

WARPLOOM_CUDA_API int cuStreamGetDevice(void* handle, int* device) {
  return with_stream(handle, [&](Stream& stream) { return put(device, stream.device); });
}

WARPLOOM_CUDA_API int cuStreamGetCtx(void* handle, void** context) {
  return with_stream(handle, [&](Stream& stream) {
    return put(context, reinterpret_cast<void*>(static_cast<intptr_t>(stream.device) + 1));
  });
}

// Of a green context there is none.
WARPLOOM_CUDA_API int cuStreamGetCtx_v2(void* handle, void** context, void** green) {
  if (green != nullptr) *green = nullptr;
  return cuStreamGetCtx(handle, context);
}

WARPLOOM_CUDA_API int cuStreamWaitEvent(void* stream, void* handle, unsigned) {
  return with_event(handle, [&](Event& event) {
    if (!is_stream(stream)) return no_stream();
    wait_event(event, stream);
    return abi::kSuccess;
  });
}

// The attributes of streams are policies of caches and domains of memory.
WARPLOOM_CUDA_API int cuStreamSetAttribute(void* handle, unsigned, const void*) {
  return with_stream(handle, [](Stream&) { return abi::kSuccess; });
}

WARPLOOM_CUDA_API int cuStreamCopyAttributes(void* to, void* from) {
  return is_stream(to) && is_stream(from) ? abi::kSuccess : no_stream();
}

WARPLOOM_CUDA_API int cuStreamAttachMemAsync(void* handle, uint64_t, std::size_t, unsigned) {
  return with_stream(handle, [](Stream&) { return abi::kSuccess; });
}

WARPLOOM_CUDA_API int cuLaunchHostFunc(void* handle, abi::HostFunction function, void* data) {
  if (function == nullptr) return abi::kInvalidValue;
  return with_stream(handle, [&](Stream&) {
    return submit(handle, NodeKind::kHost, [=] {
      function(data);
      return abi::kSuccess;
    });
  });
}

WARPLOOM_CUDA_API int cuStreamAddCallback(void* handle, void (*function)(void*, int, void*),
                                          void* data, unsigned) {
  if (function == nullptr) return abi::kInvalidValue;
  if (int code = synchronise(handle); code != abi::kSuccess) return code;
  function(handle, abi::kSuccess, data);
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuEventCreate(void** event, unsigned flags) {
  if (event == nullptr) return abi::kInvalidValue;
  return guarded(abi::kOutOfMemory, [&] {
    auto made = std::make_shared<Event>();
    made->flags = flags;
    *event = events().add(std::move(made));
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuEventDestroy_v2(void* event) {
  return guarded(abi::kInvalidHandle, [&] {
    return events().remove(event) != nullptr
               ? abi::kSuccess
               : fail(abi::kInvalidHandle, "there is no such event");
  });
}

WARPLOOM_CUDA_API int cuEventRecord(void* handle, void* stream) {
  return with_event(handle, [&](Event& event) {
    if (!is_stream(stream)) return no_stream();
    record_event(event, stream);
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuEventRecordWithFlags(void* handle, void* stream, unsigned) {
  return cuEventRecord(handle, stream);
}

WARPLOOM_CUDA_API int cuEventQuery(void* handle) {
  return with_event(handle, [](Event&) { return abi::kSuccess; });
}

WARPLOOM_CUDA_API int cuEventSynchronize(void* handle) { return cuEventQuery(handle); }

WARPLOOM_CUDA_API int cuEventElapsedTime_v2(float* milliseconds, void* begin, void* end) {
  if (milliseconds == nullptr) return abi::kInvalidValue;
  return with_event(begin, [&](Event& first) {
    return with_event(end, [&](Event& last) {
      if (!first.is_recorded || !last.is_recorded || ((first.flags | last.flags) & kNoTiming)) {
        return fail(abi::kInvalidHandle, "a time between events that were not both recorded, or "
                                         "were made without times");
      }
      *milliseconds = std::chrono::duration<float, std::milli>(last.time - first.time).count();
      return abi::kSuccess;
    });
  });
}
