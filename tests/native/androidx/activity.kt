// Signatures of AndroidX's activity that the exported app calls, so that it can be compiled without the library:
// activity/activity/api/1.9.0-beta01.txt of androidx/androidx.
package androidx.activity

open class ComponentActivity : android.app.Activity(), androidx.lifecycle.LifecycleOwner {
    fun <I, O> registerForActivityResult(
        contract: androidx.activity.result.contract.ActivityResultContract<I, O>,
        callback: androidx.activity.result.ActivityResultCallback<O>,
    ): androidx.activity.result.ActivityResultLauncher<I> = TODO()
}
