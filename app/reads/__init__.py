"""What the pages read from a trace: one module per noun, each function a query and the values it gives."""
