package androidx.activity.result.contract

abstract class ActivityResultContract<I, O>

class ActivityResultContracts private constructor() {
    class RequestPermission : ActivityResultContract<String, Boolean>()
}
