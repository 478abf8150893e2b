"""What the objects must equal: loop transcriptions (`naive`) and closed forms (`closed`)."""
