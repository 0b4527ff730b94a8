// Checkpoints of other processes of this virtual GPU: the session carries them out.
#include <cerrno>

#include "backend/runner/handlers/handlers.h"

namespace bandsaw::runner {
namespace {

CUresult result_of(int error) {
  switch (error) {
    case 0:
      return CUDA_SUCCESS;
    case EPERM:
      return CUDA_ERROR_NOT_PERMITTED;
    case ENOTSUP:
      return CUDA_ERROR_NOT_SUPPORTED;
    case EPROTO:
      return CUDA_ERROR_ILLEGAL_STATE;
    case EBUSY:
    case ECANCELED:
      return CUDA_ERROR_NOT_READY;
    case ENOMEM:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case ESRCH:
    case EINVAL:
      return CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_UNKNOWN;
  }
}

}  // namespace

void Handlers::checkpoint_process(C, uint32_t action, uint32_t pid, uint64_t timeout_ms,
                                  wire::CheckpointProcessAnswer answer) {
  world_.exchange.ask_checkpoint(action, pid, timeout_ms, [answer](int error, const ExchangeClient::Thing& thing) {
    answer(result_of(error), static_cast<uint32_t>(thing.bytes));
  });
}

}  // namespace bandsaw::runner
