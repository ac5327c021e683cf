"""Log files in formats that other programs read. Each format is one module; `file_formats` lists them."""
