"""Two variants compared on live answers, with as many looks as one likes."""
