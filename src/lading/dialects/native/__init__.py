"""Our own dialect: blocks of one Arrow record batch each, which hold everything a Batch holds."""
