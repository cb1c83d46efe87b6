// The functions of ONNX Runtime's C API that the adapter calls, by their places in its table.
//
// The wheel holds no header. The table (OrtApi) only grows: "this struct is binary compatible, members are
// never moved or removed", and ONNX Runtime's sources assert the places of the last member of each version,
// e.g. ReleaseCustomOpDomain 101 (1), ReleaseModelMetadata 118 (2), AddFreeDimensionOverrideByName 124 (3),
// ReleaseAvailableProviders 126 (4). All of these are of version 6 or older. OrtApiBase has GetApi and
// GetVersionString. https://github.com/microsoft/onnxruntime/blob/main/include/onnxruntime/core/session/
// onnxruntime_c_api.h
#pragma once
#include <cstddef>
#include <cstdint>

namespace edgekit::ort {

constexpr uint32_t API_VERSION = 17;  // 1.17, the first one that knows the option of disabled optimizers

struct Base {
  const void* const* (*get_api)(uint32_t version);
  const char* (*version)();
};

// The opaque objects of the API.
struct Status;
struct Env;
struct Options;
struct Session;
struct Value;
struct MemoryInfo;
struct TensorInfo;

constexpr int FLOAT = 1, UINT8 = 2, INT8 = 3, UINT16 = 4, INT16 = 5, INT32 = 6, INT64 = 7, BOOL = 9,
              FLOAT16 = 10, DOUBLE = 11, UINT32 = 12, UINT64 = 13;
constexpr int LOG_ERROR = 3, ENABLE_ALL = 99, ARENA_ALLOCATOR = 1, MEMORY_DEFAULT = 0;

#if defined(_WIN32) && !defined(_WIN64)
#define EDGEKIT_ORT_CALL __stdcall
#else
#define EDGEKIT_ORT_CALL
#endif

// A function at a place of the table.
template <int place, class Result, class... Arguments>
struct Function {
  using Pointer = Result(EDGEKIT_ORT_CALL*)(Arguments...);
  const void* const* api;
  Result operator()(Arguments... arguments) const {
    return reinterpret_cast<Pointer>(const_cast<void*>(api[place]))(arguments...);
  }
};

struct Api {
  explicit Api(const void* const* table)
      : error_message{table},
        create_env{table},
        create_session{table},
        run{table},
        create_options{table},
        set_log_level{table},
        set_optimization{table},
        set_threads{table},
        set_op_threads{table},
        create_tensor{table},
        data_of{table},
        element_type{table},
        rank{table},
        dimensions{table},
        tensor_info{table},
        cpu_memory{table},
        release_env{table},
        release_status{table},
        release_memory{table},
        release_session{table},
        release_value{table},
        release_tensor_info{table},
        release_options{table},
        set_config{table} {}

  Function<2, const char*, const Status*> error_message;
  Function<3, Status*, int, const char*, Env**> create_env;
  Function<8, Status*, const Env*, const void*, size_t, const Options*, Session**> create_session;
  Function<9, Status*, Session*, const void*, const char* const*, const Value* const*, size_t,
           const char* const*, size_t, Value**>
      run;
  Function<10, Status*, Options**> create_options;
  Function<22, Status*, Options*, int> set_log_level;
  Function<23, Status*, Options*, int> set_optimization;
  Function<24, Status*, Options*, int> set_threads;
  Function<25, Status*, Options*, int> set_op_threads;
  Function<49, Status*, const MemoryInfo*, void*, size_t, const int64_t*, size_t, int, Value**> create_tensor;
  Function<51, Status*, Value*, void**> data_of;
  Function<60, Status*, const TensorInfo*, int*> element_type;
  Function<61, Status*, const TensorInfo*, size_t*> rank;
  Function<62, Status*, const TensorInfo*, int64_t*, size_t> dimensions;
  Function<65, Status*, const Value*, TensorInfo**> tensor_info;
  Function<69, Status*, int, int, MemoryInfo**> cpu_memory;
  Function<92, void, Env*> release_env;
  Function<93, void, Status*> release_status;
  Function<94, void, MemoryInfo*> release_memory;
  Function<95, void, Session*> release_session;
  Function<96, void, Value*> release_value;
  Function<99, void, TensorInfo*> release_tensor_info;
  Function<100, void, Options*> release_options;
  Function<130, Status*, Options*, const char*, const char*> set_config;
};

}  // namespace edgekit::ort
