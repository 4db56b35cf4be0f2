// driver.rs - a CUDA program in Rust, with the standard library only: it resolves each symbol by dlsym, works, and prints
// "worked PID". Exit status 0 where all went well.
use std::ffi::{c_char, c_int, c_uint, c_void, CString};
use std::mem::transmute;
use std::ptr::null_mut;

extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

const IMAGE: &[u8] = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry gemini_spin(.param .u64 ns)\n{ ret; }\n\0";

fn symbol(driver: *mut c_void, name: &str) -> *mut c_void {
    let text = CString::new(name).unwrap();
    let found = unsafe { dlsym(driver, text.as_ptr()) };
    assert!(!found.is_null(), "{name} is not there");
    found
}

type Launch = extern "C" fn(*mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void,
    *mut *mut c_void, *mut *mut c_void) -> c_int;

fn main() {
    unsafe {
        let name = CString::new("libcuda.so.1").unwrap();
        let driver = dlopen(name.as_ptr(), 2);
        assert!(!driver.is_null(), "no driver");
        let init: extern "C" fn(c_uint) -> c_int = transmute(symbol(driver, "cuInit"));
        let retain: extern "C" fn(*mut *mut c_void, c_int) -> c_int =
            transmute(symbol(driver, "cuDevicePrimaryCtxRetain"));
        let set: extern "C" fn(*mut c_void) -> c_int = transmute(symbol(driver, "cuCtxSetCurrent"));
        let load: extern "C" fn(*mut *mut c_void, *const u8) -> c_int = transmute(symbol(driver, "cuModuleLoadData"));
        let get: extern "C" fn(*mut *mut c_void, *mut c_void, *const u8) -> c_int =
            transmute(symbol(driver, "cuModuleGetFunction"));
        let launch: Launch = transmute(symbol(driver, "cuLaunchKernel"));
        let sync: extern "C" fn() -> c_int = transmute(symbol(driver, "cuCtxSynchronize"));
        let (mut context, mut module, mut function) = (null_mut(), null_mut(), null_mut());
        assert_eq!(init(0), 0);
        assert_eq!(retain(&mut context, 0), 0);
        assert_eq!(set(context), 0);
        assert_eq!(load(&mut module, IMAGE.as_ptr()), 0);
        assert_eq!(get(&mut function, module, b"gemini_spin\0".as_ptr()), 0);
        let mut ns: u64 = 50_000;
        let mut parameters = [&mut ns as *mut u64 as *mut c_void];
        for _ in 0..40 {
            assert_eq!(launch(function, 1, 1, 1, 1, 1, 1, 0, null_mut(), parameters.as_mut_ptr(), null_mut()), 0);
        }
        assert_eq!(sync(), 0);
    }
    println!("worked {}", std::process::id());
}
