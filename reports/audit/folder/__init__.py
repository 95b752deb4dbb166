"""The auditor's own reading of a folder: files, hashes, signature and what the folder must hold."""
