# Shared by all plots: terminal, fonts, colours (Okabe-Ito palette, safe for colour-blind readers).
# Required variables: name, page_note, width, height (pixels). Optional: format = 'png' (default) or 'svg';
# to_stdout: the picture goes to standard output in place of a file.
# Texts from the document are never 'enhanced': no character in them is interpreted as markup.
if (!exists("format")) format = 'png'
font_name = 'DejaVu Sans'
if (format eq 'svg') {
    set terminal svg enhanced size width,height fixed background '#ffffff' font font_name.',12'
    title_font = font_name.',17'; panel_font = font_name.',13'; small_font = font_name.',12';
    tiny_font = font_name.',11'
} else {
    set terminal pngcairo enhanced size width,height background '#ffffff' font font_name.',10'
    title_font = font_name.',13'; panel_font = font_name.':Bold,10'; small_font = font_name.',9';
    tiny_font = font_name.',8'
}
if (!exists("to_stdout")) set output name.'.'.format
set encoding utf8
set datafile missing '?'
data = name.'.dat'
black = '#000000'; orange = '#e69f00'; sky = '#56b4e9'; green = '#009e73'
yellow = '#f0e442'; blue = '#0072b2'; vermillion = '#d55e00'; purple = '#cc79a7'
ink = '#222222'; soft = '#666666'; pale = '#e6e6e6'
set border 3 linecolor rgb '#888888' linewidth 1
set tics nomirror out scale 0.5 textcolor rgb '#333333' font tiny_font
set grid linecolor rgb pale linewidth 1 linetype 1
# Convert positions in pixels from the left and the top to screen coordinates.
px(x) = x / real(width)
py(y) = 1 - y / real(height)
