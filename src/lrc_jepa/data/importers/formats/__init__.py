"""The formats that can be imported, a file each; what they share lies beside this folder."""
